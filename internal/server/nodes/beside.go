package nodes

import (
	"context"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/explain"
	"github.com/tutti-project/tutti/internal/server/core"
	"github.com/tutti-project/tutti/internal/share"
)

// The server answers questions of compiles from the readers' version of the fold, so these questions do not wait in
// the writer's queue. An answer may be as old as the call, because the gate later compares what the compile read
// with the present state. Package share limits how much one node may ask in a period of time, and how many costly
// questions the server answers at once.

// inVersion calls the function `work` with a version of the fold that includes everything that the
// server acknowledged before the call. Only the writer can record something. So if `work` wants to
// record something, inVersion calls `work` again in the writer.
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

// The type `about` is the part of a large message that names the run and the node.
type about struct {
	Run tutti.RunID    `json:"run"`
	For tutti.NodeName `json:"for"`
}

// beforeLarge checks whether the sender may send a large message. The function first reads only the run
// and the node of the message.
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

// inquiry is a question of a node. The function `check` reports whether the node may ask, and what the question
// costs. The function `answer` writes its result to the field `out`. Before the call, `out` is empty.
type inquiry struct {
	check  func(tx *tx) (cost int, err error)
	answer func(tx *tx) error
	out    any
	on     tutti.NodeName // the node for which a Puppet Server asks; it is empty if a node asks for itself
}

// answerBeside answers a question without the writer, if the share of the node allows the question. If a node asks
// for itself, the bytes of the answer also use up its share, even if the share goes below zero. If an answer is
// large, answerBeside discards the answer, waits for room in memory, and makes the answer again.
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
		// a Puppet Server compiles for many nodes at once, so each of these nodes has its own turn
		turn += tutti.NodeKey(" for " + q.on)
	}
	leave, err := s.Readings.Read(ctx, turn, memory, func() error {
		if err := s.answerOnce(ctx, key, q, func(tutti.NodeKey, int, time.Time) error { return nil }); err != nil {
			return err
		}
		if now, _ := sizeOfAnswer(q.out); now > size+size/4 {
			return tutti.Errorf(tutti.CodeUnavailable, "the answer has grown from %d to %d bytes while it waited; ask again", size, now)
		}
		return nil
	})
	if err == nil {
		tutti.TurnOf(ctx).AfterAnswer(leave)
	}
	return err
}

// answerOnce calls the function `pay` with the cost of a question, and makes the answer if `pay` returns no error.
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
