package app

import (
	"context"
	"errors"

	"github.com/tutti-project/tutti/internal/cli"
	"github.com/tutti-project/tutti/internal/operator"
	"github.com/tutti-project/tutti/internal/uidoor"
)

// openUI opens the door for a browser, with the certificate of the operator.
func openUI(ctx context.Context, c cli.Connection, in cli.UI) error {
	if _, err := uidoor.Link(in.Path); err != nil {
		return err
	}
	if err := renewOperator(c); err != nil {
		in.Refused(err, false)
	}
	client, err := operator.Connect(operator.ConnectOptions(c))
	if err != nil {
		return err
	}
	// ask once before the browser starts, because an error on the terminal is easier to read
	if _, err := client.ListPauses(ctx); err != nil {
		return err
	}
	name, server := operator.Who(operator.ConnectOptions(c))
	o := uidoor.Options{
		Server: client, About: uidoor.About{Operator: name, Server: server, Release: Version},
		Refused: func(why error) { in.Refused(why, errors.Is(why, uidoor.ErrUsedCode)) },
	}
	return uidoor.Serve(ctx, o, in.Path, func(at uidoor.Opened) {
		out := cli.UIOpened{URL: at.URL, File: at.File}
		if in.Browser {
			if err := uidoor.Browse(ctx, at.File); err != nil {
				out.NoBrowser = err.Error()
			}
		}
		in.Opened(out)
	})
}
