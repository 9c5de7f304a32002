package share

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/tutti-project/tutti"
)

// One node may make the server compare only so much in a time, and only so many costly questions are answered at once: the
// others' calls and the writer share the processors with them.
const (
	// MaxAskCost bounds the comparisons (see data.State.Cost) that are made for one question. A question
	// that matches all of 50,000 nodes by twenty terms takes a million and some. A comparison takes up to 25 ns.
	MaxAskCost = 5_000_000
	// CostAtOnce is how many comparisons a node may ask for at once, costEach how many more each
	// second. A costly question has MaxAskCost, and takes about 100 ms.
	CostAtOnce = 2 * MaxAskCost
	costEach   = 500_000
	// costOfCall and costOfByte are what it costs to read a question.
	costOfCall = 1_000
	costOfByte = 5
	// BytesOfCost are the bytes of what a run hands over, of which few are compared, and of an answer that cost one. What is
	// as large as it may be takes most of what a node has at once.
	BytesOfCost = 8
	// costOfExport is what it costs, besides its bytes, to decide on an export that a node has not sent by itself.
	costOfExport = 10
	// Costly is from where on a question waits for others.
	Costly = 100_000
)

// Shares are what nodes may still ask for.
type Shares struct {
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

// New gives each node all that it may have at once.
func New() *Shares {
	return &Shares{left: map[tutti.NodeKey]share{}, refused: map[tutti.NodeKey]refused{}, slots: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))}
}

// now is what a node has left.
func (s share) now(now time.Time) int {
	return min(CostAtOnce, s.left+int(min(now.Sub(s.at), time.Minute).Seconds()*costEach))
}

// Pay takes a cost out of a node's share, or says when there will be enough.
func (s *Shares) Pay(key tutti.NodeKey, cost int, now time.Time) error {
	return s.take(key, cost, cost, now)
}

// Owe takes a cost out of a node's share that has something left, and leaves less than nothing, if need be. Who has paid for the
// work of an answer, and was refused its bytes then, would pay for the work at each try, and might never have enough for both.
func (s *Shares) Owe(key tutti.NodeKey, cost int, now time.Time) error {
	return s.take(key, cost, 0, now)
}

// take takes a cost out of a node's share that has so much.
func (s *Shares) take(key tutti.NodeKey, cost, least int, now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.swept) > time.Minute { // whoever asked nothing for so long has all
		for k, of := range s.left {
			if of.now(now) == CostAtOnce {
				delete(s.left, k)
			}
		}
		s.swept = now
	}
	of, known := s.left[key]
	left := CostAtOnce
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

// Left is what a node has left; less than nothing: it is in debt.
func (s *Shares) Left(key tutti.NodeKey, now time.Time) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if of, known := s.left[key]; known {
		return of.now(now)
	}
	return CostAtOnce
}

// ReadQuestion pays for reading a question.
func (s *Shares) ReadQuestion(key tutti.NodeKey, payload []byte) error {
	return s.Pay(key, costOfCall+costOfByte*len(payload), time.Now())
}

// ReadGate pays for reading what a compiled run hands over.
func (s *Shares) ReadGate(key tutti.NodeKey, payload []byte) error {
	return s.Pay(key, CostOfGate(len(payload)), time.Now())
}

// CostOfGate is what it costs to read so many bytes that a run hands over.
func CostOfGate(size int) int { return costOfCall + size/BytesOfCost }

// CostOfServed is what it costs a node that so many exports are read and decided on, which somebody else has sent.
func CostOfServed(size, count int) int { return CostOfGate(size) + costOfExport*count }

// Refuse notes that a run was refused a gate of so many bytes.
func (s *Shares) Refuse(key tutti.NodeKey, run tutti.RunID, size int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	had := s.refused[key]
	if had.run != run {
		had = refused{run: run}
	}
	had.bytes += size
	s.refused[key] = had
}

// Refused is how many bytes of gates a run was refused.
func (s *Shares) Refused(key tutti.NodeKey, run tutti.RunID) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if had := s.refused[key]; had.run == run {
		return had.bytes
	}
	return 0
}

// Enter waits until a costly question may be answered; leave has to follow.
func (s *Shares) Enter(ctx context.Context) (leave func(), err error) {
	select {
	case s.slots <- struct{}{}:
		return func() { <-s.slots }, nil
	case <-ctx.Done():
		return nil, tutti.Wrap(tutti.CodeDeadline, context.Cause(ctx), "waiting for other nodes' questions")
	}
}
