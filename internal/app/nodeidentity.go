package app

import (
	"errors"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/identity"
)

// loadKeys reads a node's keys. What is there and cannot be used is never made
// anew: who the node is would be lost without a word. CodeNotFound: there are
// none.
func loadKeys(dir string) (identity.NodeIdentity, error) {
	node, err := identity.LoadNode(dir)
	return node, unusable(err, "put it back, or make this machine a node anew: stop tutti-agent, remove "+dir+
		", say `tutti node replace` of this node on an operator's machine, and join with a new token")
}

// loadBoxes reads a node's keys for secrets, like loadKeys.
func loadBoxes(dir string) (*identity.Boxes, error) {
	boxes, err := identity.LoadBoxes(dir)
	return boxes, unusable(err, "put it back; without it, what is sealed to it is sealed once more by `tutti secret reseal`: remove the file")
}

// loadMembership reads what let the node in, like loadKeys.
func loadMembership(dir string) (identity.EnrolResponse, error) {
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
		return err // says what to do
	}
	return tutti.Errorf(tutti.CodeOf(err), "%w; nothing was changed; %s", err, mend)
}
