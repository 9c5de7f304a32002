package identity

import (
	"errors"

	"github.com/tutti-project/tutti"
)

// fileFleet is the file with the id of the fleet, in the directory of a server or an operator.
const fileFleet = "fleet"

// KeepFleet returns the id of the fleet that is stored in dir. If no id is stored in dir, KeepFleet takes the pin of
// the CA that is trusted now, and stores it. When the CA changes later, the id stays.
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

// FleetOf returns the id of a node's fleet. The server may have sent the id, or the node may have stored it. If
// there is no id, the result is the pin of the first CA that the node knows.
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
