package server

import (
	"bytes"
	"context"
	"regexp"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/retain"
	"github.com/tutti-project/tutti/internal/sweep"
)

// sweeper are blobs that can be swept.
type sweeper interface {
	Sweep(ctx context.Context, named func(context.Context) (map[tutti.Digest]bool, error)) (sweep.Swept, error)
}

// sweep removes the blobs that nothing names.
func (k *keeper) sweep(ctx context.Context) error {
	blobs, ok := k.opts.Blobs.(sweeper)
	if !ok {
		return nil
	}
	k.past.Lock()
	defer k.past.Unlock()
	swept, err := blobs.Sweep(ctx, k.named)
	if err == nil && swept.Removed > 0 {
		k.opts.Logger.Info("blobs swept", "stored", swept.Stored, "removed", swept.Removed)
	}
	return err
}

var digestRE = regexp.MustCompile(`sha256:[0-9a-f]{64}`)

// named returns the digests that an event of the log or of the latest snapshot
// names, wherever in it: whatever a later kind of event names is named by this,
// too. An event may be a blob itself; what names code names its manifest, and that
// its files. Reports and logs of runs are named as long as they are to stay.
func (k *keeper) named(ctx context.Context) (map[tutti.Digest]bool, error) {
	out, _, err := k.content(ctx)
	return out, err
}

// content returns what is named, and of that what must be there: the server has stored it itself, or
// has seen it, before it appended the event that names it, and lets it go with that event. Reports and
// logs are not among it: how many stay is an option, which may have been a smaller one.
func (k *keeper) content(ctx context.Context) (out map[tutti.Digest]bool, needed map[tutti.Digest]string, err error) {
	out, needed = map[tutti.Digest]bool{}, map[tutti.Digest]string{}
	var pushed []tutti.Digest
	var ended []retain.Ended
	foreign := foreignReports{}
	err = k.each(ctx, func(entry tutti.Entry, e tutti.Event) bool {
		out[tutti.DigestOf(entry.Raw)] = true
		need(needed, e.Body)
		switch b := e.Body.(type) {
		case *tutti.SnapshotTaken: // only the latest one is read again
			return true
		case *tutti.CodePushed:
			pushed = append(pushed, b.Signed)
		case *tutti.RunFinished:
			ended = append(ended, retain.Ended{At: e.At, Report: b.Result.Report, Log: b.Result.Log})
			note(out, leaveOut(entry.Raw, b.Result.Report, b.Result.Log))
			out[b.Result.Record] = true // also if it is one of these
			return true
		case *tutti.RunForeign:
			foreign.add(e.At, b)
			return true
		}
		note(out, entry.Raw)
		return true
	})
	if err != nil {
		return nil, nil, err
	}
	for _, of := range k.opts.KeepReports.Keeps(ended, time.Now()) {
		out[of.Report], out[of.Log] = true, true
	}
	foreign.name(out, k.opts.KeepReports.For, time.Now())
	delete(out, "") // of runs without
	if taken := k.taken.Load(); taken != nil {
		out[taken.State], needed[taken.State] = true, "the latest snapshot"
		for _, s := range taken.Segments {
			out[s.Blob], needed[s.Blob] = true, "the audit trail"
		}
	}
	for _, signed := range pushed {
		files := map[tutti.Digest]bool{}
		if err := k.files(ctx, signed, files); err != nil {
			return nil, nil, err
		}
		for d := range files {
			out[d], needed[d] = true, "a file of code"
		}
	}
	delete(needed, "")
	return out, needed, nil
}

// need notes the content that an event needs, and what it is.
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
	case *tutti.CodePushed:
		needed[b.Signed] = "the manifest of code for " + b.Environment
	}
}

func note(out map[tutti.Digest]bool, text []byte) {
	for _, d := range digestRE.FindAll(text, -1) {
		out[tutti.Digest(d)] = true
	}
}

// leaveOut returns a text in which these digests are not, if they are any.
func leaveOut(text []byte, digests ...tutti.Digest) []byte {
	for _, d := range digests {
		if d != "" {
			text = bytes.ReplaceAll(text, []byte(d), nil)
		}
	}
	return text
}

// files notes the files of code.
func (k *keeper) files(ctx context.Context, blob tutti.Digest, out map[tutti.Digest]bool) error {
	raw, err := k.opts.Blobs.Get(ctx, blob)
	if tutti.CodeOf(err) == tutti.CodeNotFound {
		return tutti.Wrap(tutti.CodeDamaged, err, "the manifest of code that was pushed is gone")
	}
	if err != nil {
		return tutti.Wrap("", err, "manifest of code")
	}
	signed, err := decode[tutti.SignedCode]("signed code", raw)
	if err == nil {
		note(out, signed.Manifest)
	}
	return err
}
