package server

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/explain"
	"github.com/tutti-project/tutti/wire"
)

// Questions of compiles are answered beside the writer, from the readers' version of the fold.
// What is read is compared at the gate, so an answer need not be newer than the call. One node may
// make the server compare only so much in a time, and only so many costly questions are
// answered at once: the others' calls and the writer share the processors with them.
const (
	// costAtOnce is how many comparisons a node may ask for at once, costEach how many more each
	// second. A costly question has maxAskCost, and takes about 100 ms.
	costAtOnce = 2 * maxAskCost
	costEach   = 500_000
	// costOfCall and costOfByte are what it costs to read a question.
	costOfCall = 1_000
	costOfByte = 5
	// bytesOfCost are the bytes of what a run hands over, of which few are compared, and of an answer that cost one. What is
	// as large as it may be takes most of what a node has at once.
	bytesOfCost = 8
	// costOfExport is what it costs, besides its bytes, to decide on an export that a node has not sent by itself.
	costOfExport = 10
	// costly is from where on a question waits for others.
	costly = 100_000
)

// shares are what nodes may still ask for.
type shares struct {
	mu    sync.Mutex
	left  map[tutti.NodeKey]share
	swept time.Time
	slots chan struct{} // taken by costly questions that are being answered

	refused map[tutti.NodeKey]refused
}

// refused is how many bytes of large gates the last such run of a node was refused.
type refused struct {
	run   tutti.RunID
	bytes int
}

// share is a node's: so much was left then.
type share struct {
	left int
	at   time.Time
}

func newShares() *shares {
	return &shares{left: map[tutti.NodeKey]share{}, refused: map[tutti.NodeKey]refused{}, slots: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))}
}

// now is what a node has left.
func (s share) now(now time.Time) int {
	return min(costAtOnce, s.left+int(min(now.Sub(s.at), time.Minute).Seconds()*costEach))
}

// pay takes a cost out of a node's share, or says when there will be enough.
func (s *shares) pay(key tutti.NodeKey, cost int, now time.Time) error {
	return s.take(key, cost, cost, now)
}

// owe takes a cost out of a node's share that has something left, and leaves less than nothing, if need be. Who has paid for the
// work of an answer, and was refused its bytes then, would pay for the work at each try, and might never have enough for both.
func (s *shares) owe(key tutti.NodeKey, cost int, now time.Time) error {
	return s.take(key, cost, 0, now)
}

// take takes a cost out of a node's share that has so much.
func (s *shares) take(key tutti.NodeKey, cost, least int, now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.swept) > time.Minute { // whoever asked nothing for so long has all
		for k, of := range s.left {
			if of.now(now) == costAtOnce {
				delete(s.left, k)
			}
		}
		s.swept = now
	}
	of, known := s.left[key]
	left := costAtOnce
	if known {
		left = of.now(now)
	}
	if left < least {
		wait := time.Duration(float64(least-left) / costEach * float64(time.Second))
		return tutti.Errorf(tutti.CodeUnavailable, "this node has asked for more than its share of comparisons and bytes; ask again in %s", wait.Round(time.Millisecond))
	}
	s.left[key] = share{left - cost, now}
	return nil
}

// read pays for reading a question.
func (s *shares) read(key tutti.NodeKey, payload []byte) error {
	return s.pay(key, costOfCall+costOfByte*len(payload), time.Now())
}

// decode pays for reading what a compiled run hands over.
func (s *shares) decode(key tutti.NodeKey, payload []byte) error {
	return s.pay(key, costOfGate(len(payload)), time.Now())
}

// costOfGate is what it costs to read so many bytes that a run hands over.
func costOfGate(size int) int { return costOfCall + size/bytesOfCost }

// costOfServed is what it costs a node that so many exports are read and decided on, which somebody else has sent.
func costOfServed(size, count int) int { return costOfGate(size) + costOfExport*count }

// refuse notes that a run was refused a gate of so many bytes.
func (s *shares) refuse(key tutti.NodeKey, run tutti.RunID, size int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	had := s.refused[key]
	if had.run != run {
		had = refused{run: run}
	}
	had.bytes += size
	s.refused[key] = had
}

// refusedOf is how many bytes of gates a run was refused.
func (s *shares) refusedOf(key tutti.NodeKey, run tutti.RunID) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if had := s.refused[key]; had.run == run {
		return had.bytes
	}
	return 0
}

// enter waits until a costly question may be answered; leave has to follow.
func (s *shares) enter(ctx context.Context) (leave func(), err error) {
	select {
	case s.slots <- struct{}{}:
		return func() { <-s.slots }, nil
	case <-ctx.Done():
		return nil, tutti.Wrap(tutti.CodeDeadline, context.Cause(ctx), "waiting for other nodes' questions")
	}
}

// inVersion runs work on a version of the fold that has all that was acknowledged before the call. If
// work wants to record something it runs again in the writer, which records it.
func (s *Server) inVersion(ctx context.Context, work func(tx *tx) error) error {
	var records bool
	err := s.look(ctx, func(v explain.View) error {
		tx := &tx{State: v.State, now: v.Now, server: s, ticket: wire.TicketOf(ctx), notNow: refusalOf(ctx), looks: true}
		err := work(tx)
		records = tx.records
		return err
	})
	if records {
		return s.do(ctx, work)
	}
	return err
}

// about is what a large message is of.
type about struct {
	Run tutti.RunID    `json:"run"`
	For tutti.NodeName `json:"for"`
}

// beforeLarge asks whether somebody may say what a large message says, before more of it is read than that.
func (s *Server) beforeLarge(ctx context.Context, op string, payload []byte, may func(*tx, about) error) error {
	if len(payload) <= maxSmall {
		return nil
	}
	of, err := decode[about](op, payload)
	if err != nil {
		return err
	}
	return s.inVersion(ctx, func(tx *tx) error { return may(tx, of) })
}

// inquiry is a question of a node: check says whether it may ask, and what that costs; answer
// makes the answer in out, which has nothing before.
type inquiry struct {
	check  func(tx *tx) (cost int, err error)
	answer func(tx *tx) error
	out    any
	on     tutti.NodeName // on whose behalf a Puppet Server asks; empty: a node asks for itself
}

// answerBeside answers a question that the node has a share for. A node that asks for itself pays for the bytes of its answer, too,
// and may be in debt for it. What is large waits until there is room for it, and is made again then.
func (s *Server) answerBeside(ctx context.Context, key tutti.NodeKey, q inquiry) error {
	if err := s.answerOnce(ctx, key, q, s.shares.pay); err != nil {
		return err
	}
	if err := checkAnswer(q.out); err != nil {
		return err
	}
	size, memory := sizeOfAnswer(q.out)
	if q.on == "" {
		if err := s.shares.owe(key, int(size)/bytesOfCost, time.Now()); err != nil {
			return err
		}
	}
	if memory <= smallReading {
		return nil
	}
	forget(q.out)
	turn := key
	if q.on != "" {
		turn += tutti.NodeKey(" for " + q.on) // as if that node had asked: a Puppet Server compiles for many at once
	}
	leave, err := s.readings.enter(ctx, turn, memory)
	if err != nil {
		return err
	}
	err = s.answerOnce(ctx, key, q, func(tutti.NodeKey, int, time.Time) error { return nil })
	if err == nil {
		if now, _ := sizeOfAnswer(q.out); now > size+size/4 {
			err = tutti.Errorf(tutti.CodeUnavailable, "the answer has grown from %d to %d bytes while it waited; ask again", size, now)
		}
	}
	if err != nil {
		leave()
		return err
	}
	tutti.TurnOf(ctx).AfterAnswer(leave)
	return nil
}

// answerOnce makes the answer to a question that pay has let pass.
func (s *Server) answerOnce(ctx context.Context, key tutti.NodeKey, q inquiry, pay func(tutti.NodeKey, int, time.Time) error) error {
	cost := 0
	err := s.inVersion(ctx, func(tx *tx) (err error) {
		if cost, err = q.check(tx); err != nil || cost >= costly {
			return err
		}
		if err := pay(key, cost, tx.now); err != nil {
			return err
		}
		return q.answer(tx)
	})
	if err != nil || cost < costly {
		return err
	}
	if err := pay(key, cost, time.Now()); err != nil {
		return err
	}
	leave, err := s.shares.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	return s.inVersion(ctx, func(tx *tx) error {
		if _, err := q.check(tx); err != nil {
			return err
		}
		return q.answer(tx)
	})
}
