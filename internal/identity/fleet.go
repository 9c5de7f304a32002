package identity

import (
	"errors"

	"github.com/tutti-project/tutti"
)

// fileFleet keeps the id of the fleet in the directory of a server or an operator.
const fileFleet = "fleet"

// KeepFleet returns the id of the fleet that dir keeps. If dir keeps none, the id is the pin of the CA that is trusted
// now, and dir keeps it from now on. A later CA does not change it.
func KeepFleet(dir string, pin tutti.Digest) (tutti.Digest, error) {
	raw, err := readFile(dir, fileFleet)
	if errors.Is(err, ErrMissing) {
		return pin, writeFile(dir, fileFleet, []byte(pin))
	}
	if err != nil {
		return "", err
	}
	if err := tutti.Digest(raw).Validate(); err != nil {
		return "", corrupt(dir, fileFleet)
	}
	return tutti.Digest(raw), nil
}

// FleetOf returns the id of a node's fleet: the one that it was told or has kept, else the pin of the first CA that it
// knows.
func FleetOf(r EnrolResponse) (tutti.Digest, error) {
	if r.Fleet != "" {
		return r.Fleet, r.Fleet.Validate()
	}
	if len(r.Was) > 0 {
		return r.Was[0], r.Was[0].Validate()
	}
	cas, err := parseCAs([]byte(r.CA))
	if err != nil {
		return "", tutti.Wrap(tutti.CodeInvalid, err, "the fleet's CA")
	}
	return pinOf(cas[0]), nil
}
