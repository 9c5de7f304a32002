package writer

import (
	"context"

	"github.com/tutti-project/tutti"
)

// Position returns the position of the server in the log. Position returns zero before the server
// serves. The event at this position is on disk.
func (w *Writer) Position() tutti.Position {
	if at := w.at.Load(); at != nil {
		return *at
	}
	return tutti.Position{}
}

// Behind returns an error if the caller has seen a later event of this server, or an event
// of another log (ADR 0018). Behind returns no error while the server does not serve.
func (w *Writer) Behind(ctx context.Context, seen tutti.Position) error {
	here := w.Position()
	if here.Epoch.Number == 0 || seen.Epoch.Number == 0 {
		return nil
	}
	link := w.opts.Past.Link(seen.Seq)
	if link == "" && seen.Epoch == here.Epoch && seen.Seq > 0 && seen.Seq < here.Seq {
		var err error
		if link, err = w.opts.Past.LinkOfOld(ctx, seen.Seq); err != nil {
			return err
		}
	}
	return here.Behind(seen, link)
}

// The method `arrived` notes that all events so far are on disk.
func (w *Writer) arrived(events ...tutti.Event) {
	w.opts.Past.Note(events...)
	at := tutti.Position{Epoch: w.state.Engine.Epoch, Seq: w.state.Seq}
	at.Link = w.opts.Past.Link(at.Seq)
	w.at.Store(&at)
}
