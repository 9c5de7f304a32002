package share

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/tutti-project/tutti"
)

// In a given time, one node may cause only a bounded number of comparisons, and only few costly questions are answered at once:
// the other nodes' calls and the writer use the same processors.
const (
	// MaxAskCost bounds the comparisons (see data.State.Cost) that are made for one question. A question
	// that matches all of 50,000 nodes by twenty terms takes a million and some. A comparison takes up to 25 ns.
	MaxAskCost = 5_000_000
	// CostAtOnce is how many comparisons a node may ask for at once, costEach how many more each
	// second. A costly question has MaxAskCost, and takes about 100 ms.
	CostAtOnce = 2 * MaxAskCost
	costEach   = 500_000
	// costOfCall and costOfByte are the cost of reading a question: for each call, and for each byte.
	costOfCall = 1_000
	costOfByte = 5
	// BytesOfCost are the bytes that cost one comparison, in what a run hands over (few are compared) and in an answer. The largest
	// message takes most of what a node has at once.
	BytesOfCost = 8
	// costOfExport is the cost, besides its bytes, of a decision on an export that the node has not sent itself.
	costOfExport = 10
	// Costly is the cost from which on a question waits for others.
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

// refused is how many bytes of large gates were refused to the last such run of a node.
type refused struct {
	run   tutti.RunID
	bytes int
}

// share is one node's: what it had left at a time.
type share struct {
	left int
	at   time.Time
}

// New returns Shares in which each node has all that it may have at once.
func New() *Shares {
	return &Shares{left: map[tutti.NodeKey]share{}, refused: map[tutti.NodeKey]refused{}, slots: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))}
}

// now returns what a node has left at a time.
func (s share) now(now time.Time) int {
	return min(CostAtOnce, s.left+int(min(now.Sub(s.at), time.Minute).Seconds()*costEach))
}

// Pay takes a cost out of a node's share, or says when there will be enough.
func (s *Shares) Pay(key tutti.NodeKey, cost int, now time.Time) error {
	return s.take(key, cost, cost, now)
}

// Owe takes a cost out of a node's share if anything is left, even if the share becomes negative. Without that, a node that has paid for
// the work of an answer could be refused its bytes each time, pay for the work again, and never have enough for both.
func (s *Shares) Owe(key tutti.NodeKey, cost int, now time.Time) error {
	return s.take(key, cost, 0, now)
}

// take takes a cost out of a node's share if that has at least least.
func (s *Shares) take(key tutti.NodeKey, cost, least int, now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.swept) > time.Minute { // a node that asked nothing for this long has its whole share
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

// Left is what a node has left; negative: it is in debt.
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

// CostOfGate is the cost of reading this many bytes that a run hands over.
func CostOfGate(size int) int { return costOfCall + size/BytesOfCost }

// CostOfServed is the cost to a node of reading and deciding on exports that its Puppet Server has sent.
func CostOfServed(size, count int) int { return CostOfGate(size) + costOfExport*count }

// Refuse notes that a run was refused a gate of this many bytes.
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

// Enter waits until a costly question may be answered. The caller must call leave.
func (s *Shares) Enter(ctx context.Context) (leave func(), err error) {
	select {
	case s.slots <- struct{}{}:
		return func() { <-s.slots }, nil
	case <-ctx.Done():
		return nil, tutti.Wrap(tutti.CodeDeadline, context.Cause(ctx), "waiting for other nodes' questions")
	}
}
