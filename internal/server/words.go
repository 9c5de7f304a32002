package server

import "github.com/tutti-project/tutti"

// Bounds of what one message of a node may hold. A node may lie in every field:
// what it says must neither fill the log nor keep the writer busy.
const (
	maxWords  = 4 << 10 // of a text for people
	maxReads  = 20_000
	maxKeys   = 100_000
	maxValues = 5_000
	// maxStored is how many bytes of new content a node may send for one run.
	maxStored = 4 * maxBlob
	// maxChanges and maxWritten bound the values that one run sets and unsets.
	maxChanges = 2 * maxValues
	maxWritten = 8 << 20
)

// words makes a text of a node fit for logs and terminals.
func words(text string) string { return tutti.Plain(text, maxWords) }

// plainResult returns a result whose texts are words.
func plainResult(r tutti.Result) tutti.Result {
	r.Message, r.Phase = words(r.Message), words(r.Phase)
	failures := make([]tutti.Failure, len(r.Failures))
	for i, f := range r.Failures {
		failures[i] = tutti.Failure{Resource: words(f.Resource), File: words(f.File), Line: f.Line, Message: words(f.Message)}
	}
	r.Failures = failures
	changes := make([]tutti.Change, len(r.Changes))
	for i, c := range r.Changes {
		changes[i] = tutti.Change{Resource: words(c.Resource), File: words(c.File), Line: c.Line, Message: words(c.Message)}
	}
	r.Changes = changes
	waits := make([]tutti.Wait, len(r.Waits))
	for i, w := range r.Waits {
		waits[i] = tutti.Wait{Query: plainQuery(w.Query), At: plainPlace(w.At)}
	}
	r.Waits = waits
	return r
}

// plainRecord returns a record whose texts are words.
func plainRecord(r tutti.Record) tutti.Record {
	r.Run, r.Node = tutti.RunID(words(string(r.Run))), tutti.NodeName(words(string(r.Node)))
	in := &r.Inputs
	in.Mode, in.Puppet, in.Module = tutti.Mode(words(string(in.Mode))), words(in.Puppet), words(in.Module)
	for _, digest := range []*tutti.Digest{&in.Code, &in.Facts, &in.Catalog, &in.Sources, &in.Lib} {
		*digest = tutti.Digest(words(string(*digest)))
	}
	for i, read := range r.Reads {
		r.Reads[i].Query, r.Reads[i].At = plainQuery(read.Query), plainPlace(read.At)
		r.Reads[i].Digest = tutti.Digest(words(string(read.Digest)))
	}
	for i, k := range r.Keys {
		r.Keys[i].Key, r.Keys[i].At = words(k.Key), plainPlace(k.At)
	}
	for i, ref := range r.Exports {
		r.Exports[i] = words(ref)
	}
	if r.Published == nil {
		return r
	}
	published := make(map[string]tutti.Digest, len(r.Published))
	for key, digest := range r.Published {
		published[words(key)] = tutti.Digest(words(string(digest)))
	}
	r.Published = published
	return r
}

func plainQuery(q tutti.Query) tutti.Query {
	out := tutti.Query{Kind: tutti.QueryKind(words(string(q.Kind))), Key: words(q.Key), Type: words(q.Type)}
	if len(q.Filter) > 0 { // not cut: it stays JSON
		out.Filter = []byte(tutti.Plain(string(q.Filter), len(q.Filter)))
	}
	return out
}

func plainPlace(p tutti.Place) tutti.Place {
	return tutti.Place{Resource: words(p.Resource), File: words(p.File), Line: p.Line}
}

func plainLive(l tutti.Live) tutti.Live {
	l.Phase, l.Resource, l.Message = words(l.Phase), words(l.Resource), words(l.Message)
	return l
}
