package past

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/retain"
	"github.com/tutti-project/tutti/internal/sweep"
)

// sweeper is a blob store that can be swept.
type sweeper interface {
	Sweep(ctx context.Context, named func(context.Context) (map[tutti.Digest]bool, error)) (sweep.Swept, error)
}

// Sweep removes the blobs that nothing names.
func (p *Past) Sweep(ctx context.Context, emit Emit) error {
	log, ok := p.trimmed()
	if !ok {
		return nil
	}
	return (&keeper{p, log, emit}).sweep(ctx)
}

// sweep implements Sweep.
func (k *keeper) sweep(ctx context.Context) error {
	blobs, ok := k.opts.Blobs.(sweeper)
	if !ok {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	swept, err := blobs.Sweep(ctx, k.named)
	if err == nil && swept.Removed > 0 {
		k.opts.Logger.Info("blobs swept", "stored", swept.Stored, "removed", swept.Removed)
	}
	return err
}

var digestRE = regexp.MustCompile(`sha256:[0-9a-f]{64}`)

// The method `named` returns the digests of all blobs that a sweep must keep. It finds the digests in all texts of the
// events of the log and of the latest snapshot. So it also finds the digests in kinds of events that a later release
// adds. It adds the digest of each event, because an event may itself be stored as a blob. It adds the files in the
// manifests of code. The reports and logs of runs are named only as long as they should stay. Before a sweep removes
// reports, the server appends an event that says which reports do not stay.
func (k *keeper) named(ctx context.Context) (map[tutti.Digest]bool, error) {
	c, err := k.content(ctx)
	if err != nil {
		return nil, err
	}
	retired, err := k.retired(ctx, c)
	if err != nil || retired == nil {
		return c.named, err
	}
	return c.named, tutti.Wrap("", k.emit(ctx, retired), "append the event about dropped reports")
}

// content has the digests that the log and the latest snapshot name.
type content struct {
	named map[tutti.Digest]bool
	// needed has the digests of the named content that must exist, each with a description. The server
	// has stored or seen this content before it appended the event that names it. The server removes
	// needed content only when no event names the content any more, or when an event ReportsRetired
	// allows the removal.
	needed map[tutti.Digest]string
	ended  []retain.Ended
	keeps  []retain.Ended // the runs in `ended` whose reports stay
	// foreign has the reports of foreign runs.
	foreign foreignReports
	holds   inventories
	said    *tutti.ReportsRetired // the last event ReportsRetired; nil if there was none yet
}

// content returns the digests that are named now.
func (k *keeper) content(ctx context.Context) (*content, error) {
	c := &content{named: map[tutti.Digest]bool{}, needed: map[tutti.Digest]string{}}
	var pushed []tutti.Digest
	diffs := map[tutti.JobID]tutti.Digest{} // the code of unfinished jobs that compile for a diff
	err := k.each(ctx, func(entry tutti.Entry, e tutti.Event) bool {
		c.named[tutti.DigestOf(entry.Raw)] = true
		need(c.needed, e.Body)
		switch b := e.Body.(type) {
		case *tutti.SnapshotTaken: // the code below adds only the blobs of the latest snapshot
			return true
		case *tutti.ReportsRetired:
			c.said = b
			return true
		case *tutti.CodePushed:
			pushed = append(pushed, b.Signed)
		case *tutti.JobStarted:
			if b.Diff != nil {
				diffs[b.Job] = b.Diff.Signed
			}
		case *tutti.JobFinished:
			delete(diffs, b.Job)
		case *tutti.RunFinished:
			c.ended = append(c.ended, retain.Ended{Seq: e.Seq, At: e.At, Run: b.Result.Run, Report: b.Result.Report, Log: b.Result.Log})
			note(c.named, leaveOut(entry.Raw, b.Result.Report, b.Result.Log))
			c.named[b.Result.Record] = true // the record is named even if it equals the report or the log
			return true
		case *tutti.RunForeign:
			c.foreign.add(e, b)
			return true
		case *tutti.NodeInventory: // only the last of each node counts
			c.holds.add(e)
			return true
		case *tutti.NodeEnrolled, *tutti.NodeRemoved, *tutti.InventoryDropped:
			c.holds.add(e)
		}
		note(c.named, entry.Raw)
		return true
	})
	if err != nil {
		return nil, err
	}
	now := time.Now()
	c.keeps = k.opts.KeepReports.Keeps(c.ended, now)
	for _, of := range c.keeps {
		c.named[of.Report], c.named[of.Log] = true, true
		if c.said != nil && of.Seq > c.said.Through {
			c.needed[of.Report], c.needed[of.Log] = "the report of run "+string(of.Run), "the log of run "+string(of.Run)
		}
	}
	c.holds.name(c)
	c.foreign.name(c, k.opts.KeepReports.For, now)
	if taken := k.taken.Load(); taken != nil {
		c.named[taken.State], c.needed[taken.State] = true, "the latest snapshot"
		for _, s := range taken.Segments {
			c.named[s.Blob], c.needed[s.Blob] = true, "the audit trail"
		}
	}
	for _, signed := range slices.AppendSeq(pushed, maps.Values(diffs)) {
		files := map[tutti.Digest]bool{}
		if err := k.files(ctx, signed, files); err != nil {
			return nil, err
		}
		for d := range files {
			c.named[d], c.needed[d] = true, "a file of code"
		}
	}
	delete(c.named, "") // runs without a report, log or record have the empty digest
	delete(c.needed, "")
	return c, nil
}

// retired returns the event that says which reports do not stay. It returns nil if the last event
// ReportsRetired says the same. If the log has no event ReportsRetired yet, reports that are missing
// count as removed on purpose, because earlier releases did not record removals.
func (k *keeper) retired(ctx context.Context, c *content) (*tutti.ReportsRetired, error) {
	out := tutti.ReportsRetired{Foreign: c.foreign.gone}
	if n := len(c.ended) - len(c.keeps); n > 0 {
		out.Through = c.ended[n-1].Seq
	}
	if c.said != nil {
		out.Through, out.Foreign = max(out.Through, c.said.Through), max(out.Foreign, c.said.Foreign)
		if out == *c.said {
			return nil, nil
		}
		return &out, nil
	}
	latest := func(all []retain.Ended, gone *uint64) error {
		for _, of := range slices.Backward(all) {
			if of.Seq <= *gone {
				return nil
			}
			for _, d := range []tutti.Digest{of.Report, of.Log} {
				if d == "" {
					continue
				}
				has, err := k.opts.Blobs.Has(ctx, d)
				if err != nil {
					return err
				}
				if !has {
					*gone = of.Seq
					return nil
				}
			}
		}
		return nil
	}
	if err := latest(c.keeps, &out.Through); err != nil {
		return nil, err
	}
	return &out, latest(c.foreign.stay, &out.Foreign)
}

// The function `need` adds to the map `needed` the digests of the contents that an event needs. The value is a description
// of the content.
func need(needed map[tutti.Digest]string, body tutti.Body) {
	switch b := body.(type) {
	case *tutti.ExportsSet:
		needed[b.Set] = "the exports of " + string(b.Node)
	case *tutti.RunCompiled:
		needed[b.Asked], needed[b.Absent] = "what run "+string(b.Run)+" asked", "what run "+string(b.Run)+" asked"
	case *tutti.RunAsked:
		needed[b.Asked], needed[b.Absent] = "what run "+string(b.Run)+" asked", "what run "+string(b.Run)+" asked"
	case *tutti.RunFinished:
		needed[b.Result.Record] = "the record of run " + string(b.Result.Run)
	case *tutti.JobStarted:
		if b.Diff != nil {
			needed[b.Diff.Signed] = "the manifest of code for job " + string(b.Job)
		}
	case *tutti.CodePushed:
		needed[b.Signed] = "the manifest of code for " + b.Environment
	}
}

func note(out map[tutti.Digest]bool, text []byte) {
	for _, d := range digestRE.FindAll(text, -1) {
		out[tutti.Digest(d)] = true
	}
}

// leaveOut returns a text with these digests removed.
func leaveOut(text []byte, digests ...tutti.Digest) []byte {
	for _, d := range digests {
		if d != "" {
			text = bytes.ReplaceAll(text, []byte(d), nil)
		}
	}
	return text
}

// files adds the digests of the files of code.
func (k *keeper) files(ctx context.Context, blob tutti.Digest, out map[tutti.Digest]bool) error {
	raw, err := k.opts.Blobs.Get(ctx, blob)
	if tutti.CodeOf(err) == tutti.CodeNotFound {
		return tutti.Wrap(tutti.CodeDamaged, err, "the manifest of code that was pushed is missing")
	}
	if err != nil {
		return tutti.Wrap("", err, "manifest of code")
	}
	var signed tutti.SignedCode
	if err := json.Unmarshal(raw, &signed); err != nil {
		return tutti.Wrap(tutti.CodeDamaged, err, "signed code")
	}
	note(out, signed.Manifest)
	return nil
}
