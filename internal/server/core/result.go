package core

import (
	"github.com/tutti-project/tutti"
)

func OrMissing(err error) error {
	if err != nil {
		return err
	}
	return tutti.Errorf(tutti.CodeConflict, "the server does not have it; send it first")
}
