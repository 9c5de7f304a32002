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
	return node, unusable(err, "put it back, or make this machine a node anew: stop tutti-agent, remove "+dir+
		", say `tutti node replace` of this node on an operator's machine, and join with a new token")
}

// LoadBoxes reads a node's keys for secrets, like LoadKeys.
func LoadBoxes(dir string) (*identity.Boxes, error) {
	boxes, err := identity.LoadBoxes(dir)
	return boxes, unusable(err, "put it back; without it, what is sealed to it is sealed once more by `tutti secret reseal`: remove the file")
}

// LoadMembership reads the node's membership, like LoadKeys.
func LoadMembership(dir string) (identity.EnrolResponse, error) {
	member, err := identity.LoadMembership(dir)
	return member, unusable(err, "put it back, or join again with a new token, which keeps the keys: tutti join --again")
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
