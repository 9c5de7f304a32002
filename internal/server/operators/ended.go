package operators

import (
	"context"
	"slices"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/explain"
	"github.com/tutti-project/tutti/internal/past"
)

// Ended reads the reports of ended runs for another system. It does not use the writer.
type Ended struct{ *Operators }

// Place returns the position from which a reader of ended runs continues. The zero position means the end of the log. If
// the position is of another epoch, the log was restored: the reader continues at the event of the restore at the latest,
// because the restore removed later runs.
func (s Ended) Place(ctx context.Context, after tutti.Position) (tutti.Position, error) {
	err := s.Look(ctx, func(v explain.View) error {
		at := v.Seq
		if after.Seq != 0 && v.Engine.Epoch != after.Epoch && v.Engine.Epoch.Number > 1 {
			at = min(at, v.Registry.EpochAt)
		}
		if after.Seq == 0 || after.Seq > at {
			after.Seq = at
		}
		after.Epoch = v.Engine.Epoch
		return nil
	})
	return after, err
}

// endedAtATime is how many runs are looked up together.
const endedAtATime = 256

// Read yields the ended runs that have a report, and the facts that nodes have sent, after a sequence, in the order of the
// log. Facts that the server does not hold any more are left out. It ends at the first error
// of yield, and returns the sequence of the last event that it has read. The field Node is empty if the server no longer knows the run.
func (s Ended) Read(ctx context.Context, after uint64, yield func(past.Ended) error) (through uint64, err error) {
	through = after
	var found []past.Ended
	flush := func() error {
		err := s.Look(ctx, func(v explain.View) error {
			for i := range found {
				r := v.Engine.Runs[found[i].Run]
				switch {
				case found[i].Facts != "":
					found[i].Ordered = r == nil || r.Program != tutti.ProgramAgent
				case r != nil && found[i].Node == "":
					found[i].Node, found[i].Ordered = r.Node, r.Program != tutti.ProgramAgent
				}
			}
			found = slices.DeleteFunc(found, func(e past.Ended) bool { // later facts follow, or nobody wants them any more
				if e.Facts == "" {
					return false
				}
				n := v.Registry.Nodes[e.Node]
				held := (*tutti.Held)(nil)
				if n != nil {
					held = n.Inventory.Part(tutti.InventoryFacts)
				}
				return held == nil || held.Blob != e.Facts
			})
			return nil
		})
		for _, e := range found {
			if err == nil {
				err = yield(e)
			}
		}
		found = nil
		return err
	}
	for e, err := range s.Past.HistoryInTurns(ctx, after) {
		if err != nil {
			return through, err
		}
		through = e.Seq
		switch b := e.Body.(type) {
		case *tutti.RunFinished:
			if b.Result.Report != "" && !b.Result.Stopped {
				found = append(found, past.Ended{Seq: e.Seq, At: e.At, Run: b.Result.Run, Report: b.Result.Report})
			}
		case *tutti.NodeInventory:
			if held := b.Facts; held != nil && held.Blob != "" {
				found = append(found, past.Ended{Seq: e.Seq, At: e.At, Run: held.Run, Node: b.Node, Facts: held.Blob, Environment: held.Environment})
			}
		case *tutti.RunForeign:
			if b.Result.Report != "" {
				found = append(found, past.Ended{Seq: e.Seq, At: e.At, Run: b.Result.Run, Report: b.Result.Report, Node: b.Node})
			}
		}
		if len(found) == endedAtATime {
			if err := flush(); err != nil {
				return through, err
			}
		}
	}
	return through, flush()
}

// Appended returns a channel that is closed when the log gets another event.
func (s Ended) Appended() <-chan struct{} { return s.Writer.Appended() }

// Report returns the report of a run, or facts in gzip. It returns CodeNotFound if the server no longer keeps the content.
func (s Ended) Report(ctx context.Context, digest tutti.Digest) ([]byte, error) {
	return s.Opts.Blobs.Get(ctx, digest)
}
