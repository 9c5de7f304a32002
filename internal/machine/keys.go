package machine

import (
	"errors"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/identity"
)

// LoadKeys reads a node's keys. LoadKeys never replaces existing but unusable keys,
// because the node would silently lose its identity. LoadKeys returns CodeNotFound if
// there are no keys.
func LoadKeys(dir string) (identity.NodeIdentity, error) {
	node, err := identity.LoadNode(dir)
	return node, unusable(err, "put the file back, or join this machine as a new node: stop tutti-agent, remove "+dir+
		", run `tutti node replace` for this node on an operator's machine, and join with a new token")
}

// LoadBoxes reads a node's keys for secrets, like LoadKeys.
func LoadBoxes(dir string) (*identity.Boxes, error) {
	boxes, err := identity.LoadBoxes(dir)
	return boxes, unusable(err, "put the file back, or remove it: `tutti secret reseal` then seals the node's secrets again")
}

// LoadMembership reads the node's membership, like LoadKeys.
func LoadMembership(dir string) (identity.EnrolResponse, error) {
	member, err := identity.LoadMembership(dir)
	return member, unusable(err, "put the file back, or join again with a new token, which keeps the keys: tutti join --again")
}

func unusable(err error, mend string) error {
	switch {
	case err == nil:
		return nil
	case tutti.CodeOf(err) == tutti.CodeNotFound:
		return tutti.Wrap("", err, "this machine is not a node yet, join it with: tutti join")
	case errors.Is(err, identity.ErrExposed):
		return err // the error already says what to do
	}
	return tutti.Errorf(tutti.CodeOf(err), "%w; nothing was changed; %s", err, mend)
}
