package nodes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/fold"
	"github.com/tutti-project/tutti/internal/plain"
	"github.com/tutti-project/tutti/internal/presence"
	"github.com/tutti-project/tutti/internal/report"
	"github.com/tutti-project/tutti/wire"
)

const (
	// maxForeign is the largest size, in bytes, of a foreign run with its report.
	maxForeign = 2*report.MaxYAML + maxHead
	// maxAhead is how far the clock of a node may be ahead. The server keeps the runs that started
	// last, so a run with a start in the future would displace later runs. The limit does not apply
	// to a run that makes its node worse: without this run, the node would count as good.
	maxAhead = time.Hour
)

var (
	errTellsMuch   = errors.New("its node has sent too many reports within a minute")
	errReportsMuch = fmt.Errorf("its node has sent too many reports of foreign runs within an hour, %d MiB at most: it must report this run later", presence.MaxReports>>20)
	errToldMuch    = fmt.Errorf("its node has sent too much about foreign runs within an hour, %d KiB at most: it must report this run later", presence.MaxTold>>10)
)

// The method `foreign` handles the message about a foreign run, which includes its report. The method records
// each run only once, and ignores a run that the server would not keep.
func (s *Nodes) foreign(ctx context.Context, key tutti.NodeKey, payload []byte) (any, error) {
	in, content, err := wire.DecodeForeign(payload)
	if err != nil {
		return nil, err
	}
	in.Result, in.Environment, in.Puppet = plain.Result(in.Result), plain.Words(in.Environment), tutti.Plain(in.Puppet, maxVersion)
	raw, err := json.Marshal(in) // the form in which the log has it
	if err != nil {
		return nil, err
	}
	wanted, node := false, tutti.NodeName("")
	take := func(then func(tx *tx, n *fold.Node)) error {
		return s.do(ctx, func(tx *tx) error {
			n, err := tx.Node(key)
			if err != nil {
				return err
			}
			node = n.Node
			if wanted, err = tx.mayTell(n, in); !wanted || err != nil {
				return err
			}
			if !s.Presence.HasRoomToTell(n.Node, tx.Now, len(raw)) {
				return tutti.Wrap(tutti.CodeUnavailable, errToldMuch, "foreign run %s", in.Result.Run)
			}
			then(tx, n)
			return nil
		})
	}
	if err := take(func(*tx, *fold.Node) {}); err != nil || !wanted {
		return nil, err
	}
	if in.Result.Report != "" {
		has, err := s.Opts.Blobs.Has(ctx, in.Result.Report)
		if err == nil && !has {
			err = s.mayReport(node, len(content))
		}
		if err != nil {
			return nil, tutti.Wrap(tutti.CodeUnavailable, err, "foreign run %s", in.Result.Run)
		}
		if _, err := s.Opts.Blobs.Put(ctx, bytes.Clone(content)); err != nil {
			return nil, tutti.Wrap("", err, "keep the report of foreign run %s", in.Result.Run)
		}
	}
	return nil, take(func(tx *tx, n *fold.Node) {
		s.Presence.Tells(n.Node, tx.Now, len(raw))
		tx.Emit(tutti.ActorNode(n.Node), &tutti.RunForeign{Node: n.Node, Foreign: in})
	})
}

// mayReport returns an error if a node may not send the report of a foreign run now.
func (s *Nodes) mayReport(node tutti.NodeName, bytes int) error {
	now := time.Now()
	switch {
	case !s.Presence.MayTell(node, now):
		return errTellsMuch
	case !s.Presence.MayKeepReport(node, now, bytes):
		return errReportsMuch
	}
	return nil
}

// mayTell reports whether the server should keep a foreign run. The function returns CodeInvalid if the run is
// from the future, and does not make its node worse. The function returns CodeUnavailable if the run comes too soon after the last foreign run.
func (tx *tx) mayTell(n *fold.Node, in tutti.Foreign) (bool, error) {
	if r := tx.Engine.Runs[in.Result.Run]; r != nil && r.Node != n.Node {
		return false, tx.Deny(tutti.ActorNode(n.Node), "speak for run "+string(in.Result.Run),
			tutti.Errorf(tutti.CodeRefused, "run %s is not a run of node %s", in.Result.Run, n.Node))
	}
	worse := in.Disturbs() || !in.Noop && !in.Result.Outcome.Good()
	if at := in.Result.StartedAt; at.Sub(tx.Now) > maxAhead && !worse {
		return false, tutti.Errorf(tutti.CodeInvalid, "foreign run %s began at %s by the clock of node %s, but by the server's clock it is only %s: correct the wrong clock",
			in.Result.Run, at.UTC().Format(time.RFC3339), n.Node, tx.Now.UTC().Format(time.RFC3339))
	}
	if !tx.Engine.KeepsForeign(n.Node, in) {
		return false, nil
	}
	for _, f := range tx.Engine.Foreigns(n.Node) {
		// a negative time means that the server's clock was set back
		if since := tx.Now.Sub(f.EndedAt); since >= 0 && since < presence.ForeignEvery {
			return false, tutti.Errorf(tutti.CodeUnavailable, "node %s has reported a foreign run %s ago: at most one each %s", n.Node, since.Round(time.Second), presence.ForeignEvery)
		}
	}
	return true, tx.Core.Opts.Space()
}
