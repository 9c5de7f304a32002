package machine

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/agent"
	"github.com/tutti-project/tutti/internal/httpapi"
	"github.com/tutti-project/tutti/internal/identity"
)

// JoinOptions say how a machine becomes a node.
type JoinOptions struct {
	Dir   string
	Token string
	Name  tutti.NodeName // empty: use the token's name; if the token has no name, use the host's name
	// Set Again to join a machine that was a node before, and that the server now refuses. The machine keeps its keys
	// and its data. Again is not needed for a node whose membership has only expired.
	Again bool
	// CodeKeys are the ids of all keys that sign code. A person who joins the machine can give these ids. If CodeKeys
	// is empty, a new node trusts the keys that the server names, and an old node keeps the keys that it has pinned.
	CodeKeys []string
}

// Join makes the node's keys, enrols them and writes what the agent needs. If an earlier
// join did not finish, Join uses its keys again, because they are bound to the token. If
// the keys are unusable, Join returns an error and leaves them in place.
func Join(ctx context.Context, o JoinOptions) (tutti.NodeName, error) {
	token, err := identity.ParseToken(o.Token)
	if err != nil {
		return "", err
	}
	return join(o, func(node identity.NodeIdentity, was tutti.NodeName) (identity.EnrolResponse, error) {
		name := cmp.Or(o.Name, was)
		if name == "" {
			if name, err = defaultName(token.Name); err != nil {
				return identity.EnrolResponse{}, err
			}
		}
		req := identity.EnrolRequest{Token: token.ID, Secret: token.Secret, Name: name, Key: node.Key, BoxKey: node.BoxKey()}
		if err := req.Sign(node.Seed); err != nil {
			return identity.EnrolResponse{}, err
		}
		client := httpapi.NewClient("https://"+token.Address, &http.Client{
			Transport: httpapi.Transport(identity.PinnedTLS(token.Pin), &net.Dialer{}), Timeout: joinTimeout,
		})
		enrolled, err := client.Enrol(ctx, api.EnrolRequest(req))
		return identity.EnrolResponse(enrolled), err
	})
}

// joinTimeout limits how long the server may take to answer a request to join.
const joinTimeout = 30 * time.Second

// The function `join` makes the node's keys and writes the answer of the function `ask`. The argument `was` of that
// function is the name that this machine has already, or empty.
func join(o JoinOptions, ask func(node identity.NodeIdentity, was tutti.NodeName) (identity.EnrolResponse, error)) (tutti.NodeName, error) {
	dir := IdentityDir(o.Dir)
	m, err := LoadMembership(dir)
	switch {
	case err == nil && !o.Again && !ended(m):
		return "", tutti.Errorf(tutti.CodeConflict, "this machine is node %s already; if the server refuses this node now, add --again; to join as another node, stop tutti-agent and remove %s", m.Node, dir)
	case err == nil:
	case tutti.CodeOf(err) != tutti.CodeNotFound && !o.Again:
		return "", err
	default: // do not trust the content of a damaged file
		m = identity.EnrolResponse{}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	node, err := LoadKeys(dir)
	if tutti.CodeOf(err) == tutti.CodeNotFound {
		if node, err = identity.NewNode(); err == nil {
			err = node.Write(dir)
		}
	}
	if err != nil {
		return "", err
	}
	membership, err := ask(node, m.Node)
	if err != nil {
		return "", err
	}
	if err := membership.Validate(); err != nil {
		return "", err
	}
	if membership, err = KeepPins(m, membership, o.CodeKeys); err != nil {
		return "", err
	}
	now, err := identity.FleetOf(membership)
	if err != nil {
		return "", err
	}
	if err := checkOperators(membership); err != nil {
		return "", err
	}
	membership.Fleet = now
	if before, err := identity.FleetOf(m); err != nil || before != now { // the state belongs to another fleet, or the fleet is unknown
		if err := agent.Forget(o.Dir); err != nil {
			return "", err
		}
	}
	return membership.Node, membership.Write(dir)
}

// The function `ended` reports whether a membership has ended.
func ended(m identity.EnrolResponse) bool {
	_, until, err := identity.JWTLife(m.JWT)
	return err == nil && !time.Now().Before(until)
}

// defaultName returns the name in the token. If the token has no name, defaultName returns the name of this host.
func defaultName(pattern string) (tutti.NodeName, error) {
	if name := tutti.NodeName(pattern); name.Validate() == nil {
		return name, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", err
	}
	name := tutti.NodeName(host)
	return name, tutti.Wrap("", name.Validate(), "this host's name is not a valid node name; give one with --name")
}
