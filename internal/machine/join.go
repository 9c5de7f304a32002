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
	Name  tutti.NodeName // empty: the token's name, else the host's
	// Again is for a machine that was a node and is not admitted any more: it keeps
	// its keys and its data. One whose membership has ended needs no such word.
	Again bool
	// CodeKeys are the ids of all keys that sign code, as somebody who knows them says on the machine. Empty: a newcomer
	// takes those that the server names, and a node stays with those that it has pinned.
	CodeKeys []string
}

// Join makes the node's keys, enrols them and writes what the agent needs. Keys
// that were made by a join that did not end are used again: the token knows
// them. Keys that cannot be used are an error, and stay.
func Join(ctx context.Context, o JoinOptions) (tutti.NodeName, error) {
	token, err := identity.ParseToken(o.Token)
	if err != nil {
		return "", err
	}
	dir := IdentityDir(o.Dir)
	m, err := LoadMembership(dir)
	switch {
	case err == nil && !o.Again && !ended(m):
		return "", tutti.Errorf(tutti.CodeConflict, "this machine is node %s already; if the server does not let it in any more, add --again; to make it another one, stop tutti-agent and remove %s", m.Node, dir)
	case err == nil:
		o.Name = cmp.Or(o.Name, m.Node)
	case tutti.CodeOf(err) != tutti.CodeNotFound && !o.Again:
		return "", err
	default: // what a damaged file says is not believed
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
	if before, err := identity.FleetOf(m); err != nil || before != now { // what is remembered is of another fleet, or of nobody
		if err := agent.Forget(o.Dir); err != nil {
			return "", err
		}
	}
	return membership.Node, membership.Write(dir)
}

// ended reports whether a membership is over.
func ended(m identity.EnrolResponse) bool {
	_, until, err := identity.JWTLife(m.JWT)
	return err == nil && !time.Now().Before(until)
}

// defaultName is the name that a token is for, or that of this host.
func defaultName(pattern string) (tutti.NodeName, error) {
	if name := tutti.NodeName(pattern); name.Validate() == nil {
		return name, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", err
	}
	name := tutti.NodeName(host)
	return name, tutti.Wrap("", name.Validate(), "this host's name is no node name; give one with --name")
}
