package nodes

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/data"
	"github.com/tutti-project/tutti/internal/engine"
	"github.com/tutti-project/tutti/internal/explain"
	"github.com/tutti-project/tutti/internal/fold"
	"github.com/tutti-project/tutti/internal/past"
	"github.com/tutti-project/tutti/internal/plain"
	"github.com/tutti-project/tutti/internal/policy"
	"github.com/tutti-project/tutti/internal/server/core"
	"github.com/tutti-project/tutti/internal/share"
	"github.com/tutti-project/tutti/wire"
)

// maxRecords is how often the record of a run may be replaced. Puppet's agent requests at most four
// catalogs while its environment changes.
const maxRecords = 10

// beginServed tells a compile host to which run a compile on its Puppet Server belongs
// (ADR 0013).
func (s *runs) beginServed(ctx context.Context, key tutti.NodeKey, payload []byte) (any, error) {
	in, err := core.Decode[wire.BeginServed](wire.OpCompile, payload)
	if err != nil {
		return nil, err
	}
	var out wire.ServedBegun
	err = s.inVersion(ctx, func(tx *tx) error {
		_, n, r, err := tx.servedRun(key, in.Run, in.For)
		out = wire.ServedBegun{Node: n != nil, Recorded: r != nil}
		return err
	})
	return out, err
}

// servedCatalog takes the reads and the exports of a compile on a Puppet Server. The reads
// and exports belong to the run and take effect at the run's own gate. Exports that go to
// PuppetDB take effect now, no matter who started the run (stored.go).
func (s *runs) servedCatalog(ctx context.Context, key tutti.NodeKey, payload []byte) (any, error) {
	if err := s.beforeLarge(ctx, wire.OpCompiled, payload, func(tx *tx, of about) error {
		_, _, _, err := tx.servedRun(key, of.Run, of.For)
		return err
	}); err != nil {
		return nil, err
	}
	in, err := s.decodeCompiled(payload)
	if err != nil {
		return nil, err
	}
	if err := s.Opts.Space(); err != nil {
		return nil, err
	}
	// First check outside the writer's queue, before the server stores anything. The writer checks
	// again before it appends.
	ours, publishes := true, publishing(in.Exports, nil)
	if err = s.inVersion(ctx, func(tx *tx) error {
		_, n, r, err := tx.servedRun(key, in.Run, in.For)
		if ours = r != nil || n == nil || in.CatalogUUID == ""; err != nil || !ours {
			return err
		}
		_, _, err = tx.recording(key, in, publishes)
		return err
	}); err != nil {
		return nil, err
	}
	if !ours {
		return nil, s.servedToOthers(ctx, key, in)
	}
	served := &tutti.Served{
		Count: len(in.Exports), Waits: tutti.RoomForWaits(in.Waits), Failed: in.Failed, CatalogUUID: in.CatalogUUID, Lags: in.Lags,
	}
	if served.Set, err = s.StoreExports(ctx, nil, in.Exports); err != nil {
		return nil, err
	}
	asked, err := s.Past.StoreQuestions(ctx, nil, in.Reads, in.Keys)
	if err != nil {
		return nil, err
	}
	if served.Record, err = s.storePlaces(ctx, in.Gate); err != nil {
		return nil, err
	}
	return nil, s.do(ctx, func(tx *tx) error {
		host, r, err := tx.recording(key, in, publishes)
		if err != nil {
			return err
		}
		served.By = host.Node
		served.Waits = plain.Result(tutti.Result{Waits: served.Waits}).Waits
		same, err := servedAgain(r, asked, served)
		if err != nil || same {
			return err
		}
		tx.Emit(tutti.ActorNode(host.Node), &tutti.RunAsked{
			Run: r.Run, Asked: asked.Digest, Absent: asked.Content.Absent, Reads: asked.Content, Served: served,
		})
		if in.CatalogUUID != "" {
			tx.publishStored(host, r.Job, in, served.Set)
		}
		return nil
	})
}

// storePlaces stores the places in the code at which a compile on a Puppet Server asked questions.
// Only people read these places. If two compiles give equal catalogs, the stored content is equal
// as well.
func (s *runs) storePlaces(ctx context.Context, in wire.Gate) (tutti.Digest, error) {
	record := tutti.Record{Run: in.Run, Reads: slices.Clone(in.Reads), Keys: in.Keys}
	for i := range record.Reads {
		record.Reads[i].Seq = 0
	}
	digest, err := s.Past.Store(ctx, nil, record)
	return digest, tutti.Wrap("", err, "store the places where run %s asked", in.Run)
}

// The method `decodeCompiled` decodes and checks what a compile host hands over.
func (s *base) decodeCompiled(payload []byte) (wire.ServedCatalog, error) {
	var in wire.ServedCatalog
	fields, err := core.Decode[struct {
		For         tutti.NodeName  `json:"for"`
		Waits       json.RawMessage `json:"waits"`
		Failed      bool            `json:"failed"`
		CatalogUUID string          `json:"catalog_uuid"`
		Lags        json.RawMessage `json:"lags"`
	}](wire.OpCompiled, payload)
	if err != nil {
		return in, err
	}
	in.For, in.Failed, in.CatalogUUID = fields.For, fields.Failed, fields.CatalogUUID
	if in.Waits, _, err = data.FirstOf[tutti.Wait]("compiled: waits", fields.Waits, maxWaits); err != nil {
		return in, err
	}
	lags, _, err := data.FirstOf[tutti.Lag]("compiled: lags", fields.Lags, maxLags)
	if err == nil {
		in.Lags, err = checkLags(lags)
	}
	if err != nil {
		return in, err
	}
	if in.Gate, err = s.decodeGate(wire.OpCompiled, payload); err != nil {
		return in, err
	}
	if in.CatalogUUID != "" {
		if err := checkStored(in); err != nil {
			return in, err
		}
	}
	in.Exports, err = data.CheckExports("", in.Exports)
	return in, err
}

// servedRun returns the compile host that has the key, the node for which it compiles, and
// the run. The node is nil if it is not in the fleet. The run is nil if Tutti did not start
// it. servedRun refuses a host without a grant, and a run to which this compile does not
// belong. It records each refusal.
func (tx *tx) servedRun(key tutti.NodeKey, id tutti.RunID, name tutti.NodeName) (host, n *fold.Node, r *engine.Run, err error) {
	if host, err = tx.Node(key); err != nil {
		return nil, nil, nil, err
	}
	deny := func(err error) (*fold.Node, *fold.Node, *engine.Run, error) {
		return nil, nil, nil, tx.Deny(tutti.ActorNode(host.Node), "compile for "+string(name), err)
	}
	if err := policy.MayCompile(tx.Fleet(), tx.Registry.Groups(host), host.Node); err != nil {
		return deny(err)
	}
	n, r = tx.Registry.Nodes[name], tx.Engine.Runs[id]
	switch {
	case r == nil || r.Foreign != nil:
		return host, n, nil, nil
	case r.Node != name:
		return deny(tutti.Errorf(tutti.CodeRefused, "run %s belongs to node %s, but the catalog is for %q", id, r.Node, string(name)))
	case r.Program != tutti.ProgramAgent:
		return deny(tutti.Errorf(tutti.CodeRefused, "run %s of node %s compiles on the node itself", id, name))
	case r.ClaimedAt.IsZero() || n == nil:
		return deny(tutti.Errorf(tutti.CodeRefused, "run %s was not claimed by node %s", id, name))
	case r.Ended() || tx.Engine.Active[name] != id:
		return deny(tutti.Errorf(tutti.CodeRefused, "run %s of node %s has ended: %s", id, name, ending(r)))
	case !r.CompiledAt.IsZero():
		return deny(tutti.Errorf(tutti.CodeRefused, "run %s of node %s has its catalog already", id, name))
	}
	return host, n, r, nil
}

// The method `recording` calls servedRun for a run that must exist. The method also checks that the node of the
// run has the grants for exports that now go to PuppetDB.
func (tx *tx) recording(key tutti.NodeKey, in wire.ServedCatalog, publishes *published) (host *fold.Node, r *engine.Run, err error) {
	id, name := in.Run, in.For
	host, n, r, err := tx.servedRun(key, id, name)
	switch {
	case err != nil:
	case r == nil:
		err = tx.Deny(tutti.ActorNode(host.Node), "compile for "+string(name), tutti.Errorf(tutti.CodeRefused, "run %q is not a run of node %q", string(id), string(name)))
	case r.Records >= maxRecords:
		err = tx.Deny(tutti.ActorNode(host.Node), "compile for "+string(name), tutti.Errorf(tutti.CodeRefused, "run %s of node %s was compiled %d times, with a different catalog each time", id, name, r.Records))
	case in.CatalogUUID != "":
		err = tx.mayPublish(n, r, publishes)
	}
	return host, r, err
}

// servedAgain reports whether the Puppet Server has sent the present record of the run once more.
func servedAgain(r *engine.Run, asked past.StoredQuestions, served *tutti.Served) (bool, error) {
	had, err := json.Marshal([]any{r.Served, r.Asked})
	if err != nil {
		return false, err
	}
	has, err := json.Marshal([]any{served, asked.Content})
	return bytes.Equal(had, has), err
}

// askerOf returns the asker of a question. The asker is the node that has the key, for its
// own run, or the node for which it compiles.
func (tx *tx) askerOf(key tutti.NodeKey, id tutti.RunID, name tutti.NodeName) (*fold.Node, data.Asker, error) {
	if name == "" {
		n, r, err := tx.nodeRun(key, id)
		if err != nil {
			return nil, data.Asker{}, err
		}
		return n, tx.Asker(r), nil
	}
	host, n, r, err := tx.servedRun(key, id, name)
	switch {
	case err != nil:
		return nil, data.Asker{}, err
	case n == nil:
		err := tutti.Errorf(tutti.CodeRefused, "%q is not a node of this fleet", string(name))
		return nil, data.Asker{}, tx.Deny(tutti.ActorNode(host.Node), "compile for "+string(name), err)
	case r == nil:
		return n, data.Asker{Node: n.Node, Opener: host.Node}, nil
	}
	asker := tx.Asker(r)
	asker.Opener = host.Node
	return n, asker, nil
}

// withServed returns a gate with the report of the run's Puppet Server in place of the node's own
// report. The node has not seen what the Puppet Server handed over. The result `served` is the
// report of the Puppet Server, or nil if there is no report. The caller must call `leave`, as with
// Readings.Read.
func (s *runs) withServed(ctx context.Context, key tutti.NodeKey, in wire.Gate) (out wire.Gate, served *tutti.Served, leave func(), err error) {
	var asked *tutti.Questions
	err = s.do(ctx, func(tx *tx) error {
		_, r, err := tx.nodeRun(key, in.Run)
		if err == nil && r.Program == tutti.ProgramAgent {
			in.Exports = nil
			served, asked = r.Served, r.Asked // no code changes the contents of `served` and `asked`
		}
		return err
	})
	if err != nil || served == nil {
		return in, nil, func() {}, err
	}
	in.Reads, in.Keys = asked.Reads, absentKeys(asked)
	cost, err := s.payServed(ctx, key, served)
	if err != nil {
		return in, nil, nil, err
	}
	leave, err = s.Readings.Read(ctx, key, cost, func() (err error) {
		in.Exports, err = explain.ServedExports(ctx, s.Opts.Blobs, served)
		return tutti.Wrap("", err, "exports of run %s", in.Run)
	})
	return in, served, leave, err
}

// payServed charges the share of a node for the exports that its run's Puppet Server has handed over, as if the
// node had sent these exports. payServed returns the cost of reading these exports.
func (s *runs) payServed(ctx context.Context, key tutti.NodeKey, served *tutti.Served) (reading int64, err error) {
	if served.Count == 0 {
		return 0, nil
	}
	size, _, err := s.sizeOf(ctx, served.Set)
	if err != nil {
		return 0, err
	}
	return share.CostOfRecord * size, s.Shares.Pay(key, share.CostOfServed(int(size), served.Count), time.Now())
}

// absentKeys returns the hiera keys for which a run found no value.
func absentKeys(asked *tutti.Questions) []tutti.KeyRead {
	out := make([]tutti.KeyRead, len(asked.Keys))
	for i, key := range asked.Keys {
		out[i].Key = key
	}
	return out
}

// besidesServed adds the reads of the run's Puppet Server to a record. The node itself reads only
// for Deferred values.
func besidesServed(record tutti.Record, before *tutti.Questions) tutti.Record {
	record.Reads = slices.Concat(before.Reads, record.Reads)
	record.Keys = slices.Concat(absentKeys(before), record.Keys)
	return record
}

// waitsFor adds to a result the questions for which a Puppet Server's catalog waits, because the
// node does not know these questions. If a run got no catalog because of such a wait, its outcome
// becomes waiting. If a run got no catalog because PuppetDB was behind Tutti, the run counts as
// stopped, and its node compiles again.
func waitsFor(result tutti.Result, served *tutti.Served) tutti.Result {
	switch {
	case served == nil:
	case served.Failed && result.Outcome == tutti.Failed && result.Reason == tutti.BecauseCompile:
		switch {
		case len(served.Waits) > 0:
			result.Outcome, result.Reason, result.Waits = tutti.Waiting, "", served.Waits
		case len(served.Lags) > 0:
			result.Outcome, result.Reason, result.Stopped = "", "", true
			result.Message = served.Lags[0].String() + ": " + result.Message
		}
	case !served.Failed && result.Outcome == tutti.Waiting && len(result.Waits) == 0:
		result.Waits = served.Waits
	}
	return result
}
