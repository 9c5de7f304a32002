package agent

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/data"
	"github.com/tutti-project/tutti/internal/killpoint"
	"github.com/tutti-project/tutti/wire"
)

// The method `ask` answers a question of the run. If the run has asked the question before, it gets
// the same answer again. The method sends a new question to the server. If the server is away, the
// method returns the last known answer.
func (s *socket) ask(ctx context.Context, q tutti.Query, at tutti.Place) (answerEntry, error) {
	s.asking.Lock() // without the lock, two equal questions at the same time could get different answers
	defer s.asking.Unlock()
	if before, ok := s.book.answer(q); ok {
		return before, nil
	}
	out := answerEntry{Query: q, At: at}
	answer, err := insist[wire.Answer](ctx, s, wire.OpAsk, wire.Question{Run: s.spec.Order.Run, Query: q, Opens: true})
	if err == nil {
		err = checkAnswered(q, s.spec.Node, answer)
	}
	switch {
	case err == nil:
		out.Answer = answer
		s.keepKnown(q, answer)
	case ctx.Err() != nil: // the agent ends, so this error does not mean that the server is away
		return out, err
	case away(err):
		if !s.agent.known.last(q, &out.Answer) || checkAnswered(q, s.spec.Node, out.Answer) != nil {
			_ = s.book.write(entry{Missing: &tutti.Wait{Query: q, At: at}})
			return out, tutti.Wrap(tutti.CodeUnavailable, err, "nobody can answer")
		}
		out.Degraded = true
	default:
		return out, err
	}
	return out, s.book.write(entry{Answer: &out})
}

// keepKnown stores an answer as the last known one. The method does not store answers to noop runs,
// because such answers are valid only for the job of the run.
func (s *socket) keepKnown(q tutti.Query, answer any) {
	if s.spec.Order.Mode == tutti.ModeApply {
		s.agent.known.keep(q, answer)
	}
}

// checkAnswered refuses an answer that does not fit the node's question. The function also refuses a
// value that does not have the named digest.
func checkAnswered(q tutti.Query, node tutti.NodeName, a wire.Answer) error {
	if err := a.Validate(q); err != nil {
		return err
	}
	if q.Kind == tutti.QueryCollect || !a.Found {
		return nil
	}
	return checkDigest(q, node, a.Value, a.Digest)
}

func checkHiera(node tutti.NodeName, h wire.HieraData) error {
	if err := h.Validate(); err != nil {
		return err
	}
	for key, value := range h.Data {
		if err := checkDigest(tutti.Query{Kind: tutti.QueryHiera, Key: key}, node, value, h.Digests[key]); err != nil {
			return err
		}
	}
	return nil
}

func checkDigest(q tutti.Query, node tutti.NodeName, value json.RawMessage, digest tutti.Digest) error {
	if v, is := tutti.ParseSealed(value); is {
		return checkSealed(v, q, node, digest)
	}
	canonical, err := data.Canonical(value)
	if err == nil && tutti.DigestOf(canonical) != digest {
		err = tutti.Errorf(tutti.CodeInternal, "it does not have the digest %s", digest)
	}
	return tutti.Wrap(tutti.CodeInternal, err, "the server's value of %q", q.Key)
}

const insistEvery = 250 * time.Millisecond

// The function `insist` sends a request of the run to the server. While the server is away, the
// function repeats the request, so that a restart of the server does not end a run. When the agent's
// patience is over, the run uses the known answers. From then on, each request of the run tries the
// server only once, until the server answers again. The caller holds s.asking.
func insist[T any](ctx context.Context, s *socket, op string, in any) (T, error) {
	if s.local {
		var none T
		return none, errAsksNobody
	}
	for {
		asked := time.Now()
		out, err := call[T](ctx, s.agent, op, in)
		if err == nil || !away(err) || ctx.Err() != nil {
			s.awaySince = time.Time{}
			return out, err
		}
		if s.awaySince.IsZero() {
			s.awaySince = asked
			s.logger.Warn("a run waits for the server", "op", op, "error", err)
		}
		if time.Since(s.awaySince) >= s.agent.opts.Patience {
			return out, err
		}
		if pause(ctx, insistEvery) != nil {
			return out, err
		}
	}
}

func (s *socket) value(ctx context.Context, req request) (response, error) {
	a, err := s.ask(ctx, tutti.Query{Kind: tutti.QueryValue, Key: req.Key}, req.At)
	if err != nil {
		return nil, err
	}
	out, err := s.agent.valueResponse(a.Answer, s.book.greeted().Opens)
	if err == nil {
		out["degraded"] = a.Degraded
	}
	return out, err
}

func (s *socket) collect(ctx context.Context, req request) (response, error) {
	a, err := s.ask(ctx, collectQuery(req), req.At)
	if err != nil {
		return nil, err
	}
	return response{"exports": orNone(a.Answer.Exports), "degraded": a.Degraded}, nil
}

func collectQuery(req request) tutti.Query {
	q := tutti.Query{Kind: tutti.QueryCollect, Type: req.Type, Filter: req.Filter}
	if string(q.Filter) == "null" {
		q.Filter = nil
	}
	return q
}

// orNone returns an empty list in place of nil, so that the JSON contains a list.
func orNone(exports []tutti.Export) []tutti.Export {
	if exports == nil {
		return []tutti.Export{}
	}
	return exports
}

func (s *socket) hiera(ctx context.Context) (response, error) {
	s.asking.Lock()
	defer s.asking.Unlock()
	h := s.book.hieraData()
	if h == nil {
		h = &hieraEntry{}
		level, err := insist[wire.HieraData](ctx, s, wire.OpHiera, wire.HieraQuestion{Run: s.spec.Order.Run, Opens: true})
		if err == nil {
			err = checkHiera(s.spec.Node, level)
		}
		switch {
		case err == nil:
			h.Data = level
			s.keepKnown(hieraQuery, level)
		case ctx.Err() != nil:
			return nil, err
		case away(err):
			if !s.agent.known.last(hieraQuery, &h.Data) || checkHiera(s.spec.Node, h.Data) != nil {
				_ = s.book.write(entry{Missing: &tutti.Wait{Query: hieraQuery}})
				return nil, tutti.Wrap(tutti.CodeUnavailable, err, "nobody can answer")
			}
			h.Degraded = true
		default:
			return nil, err
		}
		if err := s.book.write(entry{Hiera: h}); err != nil {
			return nil, err
		}
	}
	out, err := s.agent.hieraResponse(h.Data, s.book.greeted().Opens)
	if err == nil {
		out["degraded"] = h.Degraded
	}
	return out, err
}

// The method `gate` sends the server what the compile has read and what it exports. The gate waits
// for the server's decision without a limit, because the launcher has the deadline. The agent
// stores the message before it sends it, because the message is part of the run's record.
func (s *socket) gate(ctx context.Context, req request) (response, error) {
	handed := wire.Gate{
		Run: s.spec.Order.Run, Reads: s.book.reads(req.Keys), Keys: req.Keys, Exports: req.Exports,
		CatalogReport: s.compiled(req),
	}
	raw, err := seal(handed)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(s.dir, gateFile), raw, 0o600); err != nil {
		return nil, err
	}
	killpoint.Here("agent.gate-kept")
	if at := s.agent.tick(); at != (tutti.Clock{}) {
		if err := s.book.write(entry{Gated: &at}); err != nil {
			return nil, err
		}
	}
	if s.local {
		return response{"verdict": tutti.GateGo, "reason": "a local run"}, nil // its catalog is not for queries
	}
	handed = withoutPlaces(handed)
	for {
		gated, err := call[wire.Gated](ctx, s.agent, wire.OpGate, handed)
		if err == nil {
			err = gated.Validate()
		}
		wait := retryAfter
		switch {
		case err == nil && gated.Verdict != tutti.GateHold:
			return response{"verdict": gated.Verdict, "reason": gated.Reason, "holds": wantsCatalogs(s.agent.wanted.Load())}, nil
		case err == nil:
			wait = holdAfter
			s.agent.sendLive([]tutti.Live{{Run: handed.Run, At: time.Now().UTC(), Phase: "gate", Message: gated.Reason}})
		case away(err):
			s.logger.Warn("the gate waits for the server", "error", err)
		default:
			return nil, err
		}
		if err := s.agent.heldFor(ctx, wait); err != nil {
			return nil, tutti.Wrap(tutti.CodeUnavailable, err, "the gate waited for the server's decision")
		}
	}
}

func (s *socket) compiled(req request) tutti.CatalogReport {
	by := s.book.greeted()
	return tutti.CatalogReport{
		Catalog: req.Catalog.Digest, Sources: req.Catalog.Sources, Lib: req.Catalog.Lib, Deferred: req.Catalog.Deferred,
		Facts: req.Facts, Values: req.Values, Puppet: by.Puppet, Module: by.Module,
	}
}

// heldFor waits until the gate may have decided. The method returns when the doorbell
// rings or the time is over.
func (a *Agent) heldFor(ctx context.Context, most time.Duration) error {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-a.gate:
	case <-timer.C:
	}
	return nil
}

// withoutPlaces removes the places in the code where each question was asked. The places make up
// most of the message. The server does not need the places for its decision. The record of the run
// contains the places.
func withoutPlaces(g wire.Gate) wire.Gate {
	g.Reads, g.Keys = slices.Clone(g.Reads), slices.Clone(g.Keys)
	for i := range g.Reads {
		g.Reads[i].At = tutti.Place{}
	}
	for i := range g.Keys {
		g.Keys[i].At = tutti.Place{}
	}
	return g
}

// The method `asked` stores lookups that the run did not hand over at a gate. These lookups belong
// to the record.
func (s *socket) asked(req request) (response, error) {
	return nil, s.book.write(entry{Asked: &askedEntry{Keys: req.Keys, Facts: req.Facts}})
}

// The method `published` answers a tutti_value with the present value of its key. A question of
// this kind does not count as a read. A local run does not ask the server.
func (s *socket) published(ctx context.Context, req request) (response, error) {
	if s.local {
		return response{"found": false, "local": true}, s.noteUnpublished(req)
	}
	if req.Sensitive {
		return s.publishedSecret(ctx, req)
	}
	q := publishedQuery(req.Key)
	a, err := call[wire.Answer](ctx, s.agent, wire.OpAsk, wire.Question{Run: s.spec.Order.Run, Query: q})
	if err == nil {
		err = a.Validate(q)
	}
	if away(err) {
		return response{"found": false}, nil // the run publishes the value again, which changes nothing
	}
	if err != nil {
		return nil, err
	}
	s.keepKnown(q, a)
	out := response{"found": a.Found}
	if a.Found {
		out["value"] = a.Value
	}
	return out, nil
}

// noteUnpublished stores the key of a tutti_value that only an ordered run would publish or withdraw.
func (s *socket) noteUnpublished(req request) error {
	if err := tutti.ValidateKey(req.Key); err != nil {
		return err
	}
	if s.spec.Order.Mode != tutti.ModeApply || s.isPublished(req) {
		return nil
	}
	return s.book.write(entry{Unpublished: req.Key})
}

// isPublished compares a tutti_value with the last known answer. It reports whether this node has already
// published, or withdrawn, exactly this value.
func (s *socket) isPublished(req request) bool {
	var known wire.Answer
	if !s.agent.known.last(publishedQuery(req.Key), &known) {
		return false
	}
	if req.Withdraw || !known.Found {
		return req.Withdraw && !known.Found
	}
	clear, secret, err := s.agent.open(known.Value, true)
	return err == nil && secret == req.Sensitive && sameValue(clear, req.Value)
}

func publishedQuery(key string) tutti.Query {
	return tutti.Query{Kind: tutti.QueryPublished, Key: key}
}

// The method `publish` sets or withdraws a value. If the server is away, the agent stores the value
// durably and sends it before the run's result.
func (s *socket) publish(ctx context.Context, req request) (response, error) {
	if s.spec.Order.Mode != tutti.ModeApply {
		return nil, tutti.Errorf(tutti.CodeRefused, "a run in mode %s publishes nothing", s.spec.Order.Mode)
	}
	if s.local {
		return nil, tutti.Errorf(tutti.CodeRefused, "a local run publishes nothing")
	}
	if err := s.agent.known.forget(publishedQuery(req.Key)); err != nil {
		return nil, err
	}
	if req.Sensitive && req.Op == "publish" {
		digest, err := s.publishSecret(ctx, req)
		if err != nil {
			return nil, err
		}
		return nil, s.book.write(entry{Published: &publishedEntry{Key: req.Key, Digest: digest}})
	}
	p := wire.Publish{Run: s.spec.Order.Run, Key: req.Key, Value: req.Value, Withdraw: req.Op == "withdraw"}
	var err error
	if hasFile(s.dir, publishFile) {
		err = s.keepPublished(p) // keep the order: the agent has not sent the earlier stored values yet
	} else if _, err = call[struct{}](ctx, s.agent, wire.OpPublish, p); away(err) && ctx.Err() == nil {
		err = s.keepPublished(p)
	}
	if err != nil {
		return nil, err
	}
	s.keepKnown(publishedQuery(p.Key), wire.Answer{Found: !p.Withdraw, Value: p.Value})
	done := &publishedEntry{Key: p.Key}
	if !p.Withdraw {
		done.Digest = tutti.DigestOf(p.Value)
	}
	return nil, s.book.write(entry{Published: done})
}

func (s *socket) keepPublished(p wire.Publish) error {
	raw, err := seal(p)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(filepath.Join(s.dir, publishFile), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := file.Write(raw); err != nil {
		return err
	}
	return file.Sync()
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
