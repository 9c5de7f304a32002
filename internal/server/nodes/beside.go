package nodes

import (
	"context"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/explain"
	"github.com/tutti-project/tutti/internal/server/core"
	"github.com/tutti-project/tutti/internal/share"
)

// Questions of compiles are answered beside the writer, from the readers' version of the fold.
// What is read is compared at the gate, so an answer need not be newer than the call. What one node may ask for in a
// time, and how many costly questions are answered at once, is bounded (package share).

// inVersion runs work on a version of the fold that has all that was acknowledged before the call. If
// work wants to record something it runs again in the writer, which records it.
func (s *base) inVersion(ctx context.Context, work func(tx *tx) error) error {
	var records bool
	err := s.Look(ctx, func(v explain.View) error {
		tx := s.looks(ctx, v)
		err := work(tx)
		records = tx.Records
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
func (s *runs) beforeLarge(ctx context.Context, op string, payload []byte, may func(*tx, about) error) error {
	if len(payload) <= maxSmall {
		return nil
	}
	of, err := core.Decode[about](op, payload)
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
func (s *runs) answerBeside(ctx context.Context, key tutti.NodeKey, q inquiry) error {
	if err := s.answerOnce(ctx, key, q, s.Shares.Pay); err != nil {
		return err
	}
	if err := checkAnswer(q.out); err != nil {
		return err
	}
	size, memory := sizeOfAnswer(q.out)
	if q.on == "" {
		if err := s.Shares.Owe(key, int(size)/share.BytesOfCost, time.Now()); err != nil {
			return err
		}
	}
	if memory <= share.SmallReading {
		return nil
	}
	forget(q.out)
	turn := key
	if q.on != "" {
		turn += tutti.NodeKey(" for " + q.on) // as if that node had asked: a Puppet Server compiles for many at once
	}
	leave, err := s.Readings.Enter(ctx, turn, memory)
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
func (s *runs) answerOnce(ctx context.Context, key tutti.NodeKey, q inquiry, pay func(tutti.NodeKey, int, time.Time) error) error {
	cost := 0
	err := s.inVersion(ctx, func(tx *tx) (err error) {
		if cost, err = q.check(tx); err != nil || cost >= share.Costly {
			return err
		}
		if err := pay(key, cost, tx.Now); err != nil {
			return err
		}
		return q.answer(tx)
	})
	if err != nil || cost < share.Costly {
		return err
	}
	if err := pay(key, cost, time.Now()); err != nil {
		return err
	}
	leave, err := s.Shares.Enter(ctx)
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
