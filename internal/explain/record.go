package explain

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/data"
	"github.com/tutti-project/tutti/internal/engine"
	"github.com/tutti-project/tutti/internal/plain"
)

// The type `kept` contains the stored parts of a run's record. Nobody may change the data to which its pointers
// point.
type kept struct {
	node   tutti.Digest     // the record from the node; empty if the node has sent none
	served *tutti.Served    // the record from the run's Puppet Server; nil if there is none
	asked  *tutti.Questions // the run's questions that the server knows; set only together with served
}

func keptOf(r *engine.Run) kept {
	var out kept
	if r.Result != nil {
		out.node = r.Result.Record
	}
	if r.Served != nil && r.Asked != nil {
		out.served, out.asked = r.Served, r.Asked
	}
	return out
}

// RunRecord implements tutti.Jobs.
func (rd *Reader) RunRecord(ctx context.Context, id tutti.RunID) (tutti.Record, error) {
	var of kept
	err := rd.look(ctx, func(v View) error {
		if r := v.Engine.Runs[id]; r != nil {
			of = keptOf(r)
		}
		return nil
	})
	if err != nil {
		return tutti.Record{}, err
	}
	record, err := rd.loadRecord(ctx, of)
	if err != nil {
		return tutti.Record{}, err
	}
	if record == nil {
		return tutti.Record{}, tutti.Errorf(tutti.CodeNotFound, "no record of a run %q", string(id))
	}
	return *record, nil
}

// loadRecord reads the record of a run. The method returns nil if the record is not stored.
func (rd *Reader) loadRecord(ctx context.Context, of kept) (*tutti.Record, error) {
	if of.node == "" {
		return nil, nil
	}
	raw, err := rd.blobs.Get(ctx, of.node)
	if tutti.CodeOf(err) == tutti.CodeNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, tutti.Wrap("", err, "the record of a run")
	}
	record, err := decodeRecord(raw)
	if err == nil && of.served != nil {
		var places asPlaces
		if places, err = rd.places(ctx, of.served); err != nil {
			return nil, err
		}
		addAsked(&record, of.asked, places)
		record.Exports, err = rd.references(ctx, of.served)
	}
	record = plain.Record(record)
	return &record, err
}

// asPlaces has the places in the code at which a compile on a Puppet Server asked its questions. The keys of the map
// `reads` are results of the function `identify`. The keys of the map `keys` are hiera keys.
type asPlaces struct{ reads, keys map[string]tutti.Place }

// The method `places` reads the places. If the places are not stored, the result is empty.
func (rd *Reader) places(ctx context.Context, served *tutti.Served) (asPlaces, error) {
	out := asPlaces{map[string]tutti.Place{}, map[string]tutti.Place{}}
	if served.Record == "" {
		return out, nil
	}
	raw, err := rd.blobs.Get(ctx, served.Record)
	if tutti.CodeOf(err) == tutti.CodeNotFound {
		return out, nil
	}
	if err != nil {
		return out, tutti.Wrap("", err, "where a Puppet Server's compile asked")
	}
	record, err := decodeRecord(raw)
	for _, r := range record.Reads {
		out.reads[identify(r.Query)] = r.At
	}
	for _, k := range record.Keys {
		out.keys[k.Key] = k.At
	}
	return out, err
}

// addAsked adds to a record the reads of the run's Puppet Server. The node itself reads
// data only for Deferred values. Only the node knows the places of its own reads.
func addAsked(record *tutti.Record, asked *tutti.Questions, places asPlaces) {
	reads, keys := map[string]bool{}, map[string]bool{}
	for _, r := range record.Reads {
		reads[identify(r.Query)] = true
	}
	for _, k := range record.Keys {
		keys[k.Key] = true
	}
	looked := func(key string, found bool) {
		if !keys[key] {
			record.Keys = append(record.Keys, tutti.KeyRead{Key: key, Found: found, At: places.keys[key]})
		}
	}
	for _, r := range asked.Reads {
		if id := identify(r.Query); !reads[id] {
			r.At = places.reads[id]
			record.Reads = append(record.Reads, r)
		}
		if r.Query.Kind == tutti.QueryHiera {
			looked(r.Query.Key, r.Found)
		}
	}
	for _, key := range asked.Keys {
		looked(key, false)
	}
}

// The method `references` returns the references of the resources that the catalog of a Puppet
// Server exports.
func (rd *Reader) references(ctx context.Context, served *tutti.Served) ([]string, error) {
	exports, err := ServedExports(ctx, rd.blobs, served)
	if tutti.CodeOf(err) == tutti.CodeNotFound { // the exports may have been deleted, like the record
		return nil, nil
	}
	var out []string
	for _, e := range exports {
		out = append(out, e.Ref())
	}
	return out, err
}

// The following constants limit the parts of a record that people see. The gate refuses runs with larger records, so
// an honest run stays within these limits.
const (
	maxReads     = 20_000
	maxKeys      = 100_000
	maxPublished = 5_000
)

// decodeRecord reads a stored record. Nodes write these records, so a list may be too long. If a list is too long, only
// its first part is used.
func decodeRecord(raw []byte) (tutti.Record, error) {
	type fields tutti.Record
	var in struct {
		fields
		Reads     json.RawMessage `json:"reads"`
		Keys      json.RawMessage `json:"keys"`
		Exports   json.RawMessage `json:"exports"`
		Published json.RawMessage `json:"published"`
	}
	if err := json.Unmarshal(raw, &in); err != nil {
		return tutti.Record{}, tutti.Wrap(tutti.CodeInvalid, err, "a stored record")
	}
	out := tutti.Record(in.fields)
	var err, unread error
	out.Reads, err = firstOf[tutti.Read]("reads", in.Reads, maxReads)
	out.Keys, unread = firstOf[tutti.KeyRead]("keys", in.Keys, maxKeys)
	err = errors.Join(err, unread)
	out.Exports, unread = firstOf[string]("exports", in.Exports, data.MaxExports)
	err = errors.Join(err, unread)
	out.Published, unread = published(in.Published)
	return out, tutti.Wrap(tutti.CodeInvalid, errors.Join(err, unread), "a stored record")
}

// firstOf is like data.FirstOf, but returns an empty list for `[]`, where data.FirstOf returns nil.
func firstOf[T any](what string, raw json.RawMessage, most int) ([]T, error) {
	out, _, err := data.FirstOf[T](what, raw, most)
	if out == nil && len(raw) > 0 && string(raw) != "null" {
		out = []T{}
	}
	return out, err
}

// The function `published` decodes the first maxPublished values that a run has published.
func published(raw json.RawMessage) (map[string]tutti.Digest, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	if open, err := decoder.Token(); err != nil || open != json.Delim('{') {
		return nil, errors.Join(err, errors.New("published: no object"))
	}
	out := map[string]tutti.Digest{}
	for decoder.More() && len(out) < maxPublished {
		key, err := decoder.Token()
		if err != nil {
			return nil, err
		}
		var digest tutti.Digest
		if err := decoder.Decode(&digest); err != nil {
			return nil, err
		}
		if key, is := key.(string); is {
			out[key] = digest
		}
	}
	return out, nil
}

// ServedExports reads the exports of a Puppet Server's catalog.
func ServedExports(ctx context.Context, blobs tutti.Blobs, served *tutti.Served) ([]tutti.Export, error) {
	if served.Count == 0 {
		return nil, nil
	}
	raw, err := blobs.Get(ctx, served.Set)
	if err != nil {
		return nil, err
	}
	return data.DecodeExports(raw)
}
