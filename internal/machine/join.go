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
	dir := IdentityDir(o.Dir)
	m, err := LoadMembership(dir)
	switch {
	case err == nil && !o.Again && !ended(m):
		return "", tutti.Errorf(tutti.CodeConflict, "this machine is node %s already; if the server refuses this node now, add --again; to join as another node, stop tutti-agent and remove %s", m.Node, dir)
	case err == nil:
		o.Name = cmp.Or(o.Name, m.Node)
	case tutti.CodeOf(err) != tutti.CodeNotFound && !o.Again:
		return "", err
	default: // do not trust the content of a damaged file
		m = identity.EnrolResponse{}
	}
	if o.Name == "" {
		if o.Name, err = defaultName(token.Name); err != nil {
			return "", err
		}
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
	req := identity.EnrolRequest{Token: token.ID, Secret: token.Secret, Name: o.Name, Key: node.Key, BoxKey: node.BoxKey()}
	if err := req.Sign(node.Seed); err != nil {
		return "", err
	}
	client := httpapi.NewClient("https://"+token.Address, &http.Client{
		Transport: httpapi.Transport(identity.PinnedTLS(token.Pin), &net.Dialer{}), Timeout: 30 * time.Second,
	})
	enrolled, err := client.Enrol(ctx, api.EnrolRequest(req))
	if err != nil {
		return "", err
	}
	membership := identity.EnrolResponse(enrolled)
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
