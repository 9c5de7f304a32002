package nodes

import (
	"bytes"
	"context"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/past"
	"github.com/tutti-project/tutti/internal/plain"
	"github.com/tutti-project/tutti/internal/server/core"
	"github.com/tutti-project/tutti/internal/share"
	"github.com/tutti-project/tutti/wire"
)

// The method `result` takes the result of a run, after the server has stored all content that the result names.
func (s *runs) result(ctx context.Context, key tutti.NodeKey, payload []byte) (any, error) {
	in, err := wire.DecodeEnded(payload)
	if err != nil {
		return nil, err
	}
	if err := in.Validate(); err != nil {
		return nil, err
	}
	of, err := s.expects(ctx, key, in.Result)
	if err != nil {
		return nil, err
	}
	var more *past.StoredQuestions
	if of.wanted {
		if err := s.storeEnclosed(ctx, key, in); err != nil {
			return nil, err
		}
		of, leave, err := s.enterRecord(ctx, key, in.Result, of)
		if err != nil {
			return nil, err
		}
		defer leave()
		if more, err = s.askedBesides(ctx, key, in.Result, of); err != nil {
			return nil, err
		}
	}
	ended := plain.Result(in.Result)
	return nil, s.do(ctx, func(tx *tx) error {
		n, r, err := tx.nodeOwnRun(key, in.Run)
		if err != nil {
			return err
		}
		if r.Result == nil { // the same result may come twice
			tx.withdrawUndeclared(n, r, in.Result)
			if more != nil {
				tx.Emit(tutti.ActorNode(n.Node), &tutti.RunAsked{Run: r.Run, Asked: more.Digest, Absent: more.Content.Absent, Reads: more.Content})
			}
			if tx.Registry.Claims[r.Run] == n {
				delete(tx.Core.Stored, n.Key)
			}
			tx.Emit(tutti.ActorNode(n.Node), &tutti.RunFinished{Result: waitsFor(ended, r.Served)})
			return nil
		}
		last := tx.Engine.Last(n.Node)
		if r.Told && r.Fenced && r == last.Claimed && r.Result.Outcome != in.Outcome && last.SetBack == nil {
			// The node has forgotten which result it reported for its last run, and reports another
			// one.
			tx.Emit(core.ActorServer, &tutti.NodeSetBack{Node: n.Node, Run: r.Run, Begun: r.Fence, During: true})
		}
		return nil
	})
}

// The type `expected` is what the server still needs from a result.
type expected struct {
	wanted bool             // the server has no result of the run yet
	asks   bool             // the record says what the run asked
	served *tutti.Questions // what the run asked at its Puppet Server; no code changes it
}

// The method `expects` looks up the run of a result before the server reads the content that the result names. So a
// node that does not own the run cannot find out which content the server has.
func (s *runs) expects(ctx context.Context, key tutti.NodeKey, in tutti.Result) (of expected, err error) {
	return of, s.do(ctx, func(tx *tx) error {
		_, r, err := tx.nodeOwnRun(key, in.Run)
		if err != nil {
			return err
		}
		of.wanted = r.Result == nil
		of.asks = of.wanted && in.Record != "" && (r.Asked == nil || in.AskedMore)
		if of.asks && r.Served != nil {
			of.served = r.Asked
		}
		return nil
	})
}

// maxRecord is the largest size, in bytes, of a record that the server reads for the questions of its run. The number
// of questions at a gate is limited. If a record has this number of questions, the questions and their places need
// only half of maxRecord.
const maxRecord = 16 << 20

// If the server needs the record of a result for the run's questions, enterRecord waits until the server may read the
// record. After that, enterRecord returns what the server still expects from the result. When the caller has
// read the record, it must call the returned function.
func (s *runs) enterRecord(ctx context.Context, key tutti.NodeKey, in tutti.Result, of expected) (expected, func(), error) {
	if !of.asks {
		return of, func() {}, nil
	}
	size, known, err := s.sizeOf(ctx, in.Record)
	if err == nil && known {
		err = checkRecord(in.Run, size)
	}
	if err != nil {
		return of, nil, err
	}
	leave, err := s.Readings.Read(ctx, key, share.CostOfRecord*min(size, maxRecord), func() (err error) {
		if share.CostOfRecord*size > share.SmallReading { // while this call waited, the server may have accepted the same result
			of, err = s.expects(ctx, key, in)
		}
		return err
	})
	return of, leave, err
}

// askedBesides stores the questions that a run did not report at a gate. A run may end
// before its gate, or ask more after the gate. The function returns nil if there are no such questions.
func (s *runs) askedBesides(ctx context.Context, key tutti.NodeKey, in tutti.Result, of expected) (*past.StoredQuestions, error) {
	if !of.asks {
		return nil, nil
	}
	raw, err := s.Opts.Blobs.Get(ctx, in.Record)
	if err != nil {
		return nil, tutti.Wrap("", err, "record of run %s", in.Run)
	}
	if err := checkRecord(in.Run, int64(len(raw))); err != nil {
		return nil, err
	}
	record, err := s.decodeRecord(raw)
	if err != nil {
		s.Opts.Logger.Warn("a record cannot be read", "run", in.Run, "error", err)
		return nil, nil
	}
	if of.served != nil {
		record = besidesServed(record, of.served)
	}
	kept, err := s.Past.StoreQuestions(ctx, s.roomOf(key, MaxEnded), record.Reads, record.Keys)
	if tutti.CodeOf(err) == tutti.CodeInvalid {
		s.Opts.Logger.Warn("a record has an invalid question", "run", in.Run, "error", err)
		return nil, nil
	}
	return &kept, err
}

func checkRecord(run tutti.RunID, size int64) error {
	if size > maxRecord {
		return tutti.Errorf(tutti.CodeRefused, "the record of run %s has %d bytes; the server reads records of at most %d", run, size, maxRecord)
	}
	return nil
}

// storeEnclosed stores the content that a result encloses. The function checks that all other
// content that the result names is stored already.
func (s *runs) storeEnclosed(ctx context.Context, key tutti.NodeKey, in wire.Ended) error {
	digests := make([]tutti.Digest, len(in.Enclosed))
	for i, part := range in.Enclosed {
		digests[i] = tutti.DigestOf(part)
		if !slices.Contains(in.Attachments(), digests[i]) {
			return tutti.Errorf(tutti.CodeInvalid, "the result of run %s encloses %s but does not name it", in.Run, digests[i])
		}
	}
	for _, d := range in.Attachments() {
		if slices.Contains(digests, d) {
			continue
		}
		if has, err := s.Opts.Blobs.Has(ctx, d); err != nil || !has {
			return tutti.Wrap(tutti.CodeConflict, core.OrMissing(err), "result of run %s names %s", in.Run, d)
		}
	}
	if len(in.Enclosed) == 0 {
		return nil
	}
	size := 0 // bytes of new content
	for i, part := range in.Enclosed {
		has, err := s.Opts.Blobs.Has(ctx, digests[i])
		if err != nil {
			return err
		}
		if !has {
			size += len(part)
		}
	}
	// Store nothing that the node may not send: each run has one result, and the size of a result
	// is limited.
	wanted := false
	err := s.do(ctx, func(tx *tx) error {
		n, r, err := tx.nodeOwnRun(key, in.Run)
		if wanted = err == nil && r.Result == nil; wanted {
			err = tx.mayKeep(n, int64(size), MaxEnded)
		}
		return err
	})
	if err != nil || !wanted {
		return err
	}
	var storing errgroup.Group // in parallel, because the store writes concurrent blobs together
	for _, part := range in.Enclosed {
		storing.Go(func() error {
			_, err := s.Opts.Blobs.Put(ctx, bytes.Clone(part))
			return err
		})
	}
	return tutti.Wrap("", storing.Wait(), "store the content that the result of run %s encloses", in.Run)
}
