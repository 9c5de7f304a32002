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
	return r
}

// plainRecord returns a record whose texts are words.
func plainRecord(r tutti.Record) tutti.Record {
	for i, read := range r.Reads {
		r.Reads[i].Query.Key, r.Reads[i].Query.Type, r.Reads[i].At = words(read.Query.Key), words(read.Query.Type), plainPlace(read.At)
	}
	for i, k := range r.Keys {
		r.Keys[i].Key, r.Keys[i].At = words(k.Key), plainPlace(k.At)
	}
	for i, ref := range r.Exports {
		r.Exports[i] = words(ref)
	}
	published := make(map[string]tutti.Digest, len(r.Published))
	for key, digest := range r.Published {
		published[words(key)] = tutti.Digest(words(string(digest)))
	}
	r.Published = published
	return r
}

func plainPlace(p tutti.Place) tutti.Place {
	return tutti.Place{Resource: words(p.Resource), File: words(p.File), Line: p.Line}
}

func plainLive(l tutti.Live) tutti.Live {
	l.Phase, l.Resource, l.Message = words(l.Phase), words(l.Resource), words(l.Message)
	return l
}
