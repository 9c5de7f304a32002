// Package plain makes texts safe for logs and terminals. The texts come from nodes, and a bad node
// may send any text in any field.
package plain

import (
	"encoding/json"
	"strings"

	"github.com/tutti-project/tutti"
)

const (
	maxWords = 4 << 10 // limit of a text for people, in bytes
	// One byte of a text becomes at most this many bytes of JSON. For example, `<` becomes \u003c.
	longest = 6
)

// Words makes a text of a node safe for logs and terminals. The result has at most 4 KiB, and at
// most 8 KiB as JSON.
func Words(text string) string { return Cut(text, maxWords) }

// Cut does the same as Words, but with another limit. The result has at most `most` bytes, and as JSON
// at most twice as many.
func Cut(text string, most int) string {
	text = tutti.Plain(text, most)
	if len(text) > 2*most/longest && encoded(text) > 2*most {
		text = tutti.Plain(text, 2*most/longest)
	}
	return text
}

// encoded returns the number of bytes of a value as JSON.
func encoded(v any) int {
	raw, _ := json.Marshal(v) // ignore the error, because the values that this package gets can be encoded
	return len(raw)
}

// Line turns a text into one line that is safe for logs and terminals. The text is a reason that
// somebody has written.
func Line(text string) string { return strings.Join(strings.Fields(Words(text)), " ") }

// Record returns a record whose texts are safe (see Words).
func Record(r tutti.Record) tutti.Record {
	r.Run, r.Node = tutti.RunID(Words(string(r.Run))), tutti.NodeName(Words(string(r.Node)))
	in := &r.Inputs
	in.Mode, in.Puppet, in.Module = tutti.Mode(Words(string(in.Mode))), Words(in.Puppet), Words(in.Module)
	for _, digest := range []*tutti.Digest{&in.Code, &in.Facts, &in.Catalog, &in.Sources, &in.Lib} {
		*digest = tutti.Digest(Words(string(*digest)))
	}
	for i, read := range r.Reads {
		r.Reads[i].Query, r.Reads[i].At = Query(read.Query), Place(read.At)
		r.Reads[i].Digest = tutti.Digest(Words(string(read.Digest)))
	}
	for i, k := range r.Keys {
		r.Keys[i].Key, r.Keys[i].At = Words(k.Key), Place(k.At)
	}
	for i, ref := range r.Exports {
		r.Exports[i] = Words(ref)
	}
	if r.Published == nil {
		return r
	}
	published := make(map[string]tutti.Digest, len(r.Published))
	for key, digest := range r.Published {
		published[Words(key)] = tutti.Digest(Words(string(digest)))
	}
	r.Published = published
	return r
}

// Query returns a question whose texts are safe (see Words).
func Query(q tutti.Query) tutti.Query {
	out := tutti.Query{Kind: tutti.QueryKind(Words(string(q.Kind))), Key: Words(q.Key), Type: Words(q.Type)}
	if len(q.Filter) > 0 { // the limit is large enough that Plain cuts nothing, because a filter must stay valid JSON
		out.Filter = []byte(tutti.Plain(string(q.Filter), len("\uFFFD")*len(q.Filter)))
	}
	return out
}

// Place returns a place whose texts are safe (see Words).
func Place(p tutti.Place) tutti.Place {
	return tutti.Place{Resource: Words(p.Resource), File: Words(p.File), Line: p.Line}
}

// Live returns a live message whose texts are safe (see Words).
func Live(l tutti.Live) tutti.Live {
	l.Phase, l.Resource, l.Message = Words(l.Phase), Words(l.Resource), Words(l.Message)
	return l
}
