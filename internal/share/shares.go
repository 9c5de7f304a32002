package share

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/tutti-project/tutti"
)

// One node may cause only a limited number of comparisons in a period of time. The server answers only few costly
// questions at once, because the calls of other nodes and the writer need the same processors.
const (
	// MaxAskCost is the largest number of comparisons (see data.State.Cost) for one question. A question with twenty
	// terms that matches all of 50,000 nodes needs a little more than a million comparisons. A comparison takes up to 25
	// ns.
	MaxAskCost = 5_000_000
	// A node may request CostAtOnce comparisons at once. After each second the node may request costEach
	// more. A question with the cost MaxAskCost takes about 100 ms.
	CostAtOnce = 2 * MaxAskCost
	costEach   = 500_000
	// costOfCall and costOfByte are the cost of reading a question, per call and per byte.
	costOfCall = 1_000
	costOfByte = 5
	// BytesOfCost is how many bytes of a gate or of an answer cost as much as one comparison. Only few bytes of a
	// gate take part in comparisons. The largest message costs most of a node's full share.
	BytesOfCost = 8
	// costOfExport is the additional cost of a decision about an export that the node has not sent itself.
	costOfExport = 10
	// CostOfRenewal is the cost of a new JWT. The server signs it, which takes about 0.6 ms. CostOfClaim is the cost of a
	// claim, which needs the writer. An honest node claims when the server rings. Without a ring it claims about twice a
	// minute.
	CostOfRenewal = 25_000
	CostOfClaim   = 4_000
	// Costly is the cost above which a question waits for a slot.
	Costly = 100_000
)

// Shares has the remaining share of each node.
type Shares struct {
	mu    sync.Mutex
	left  map[tutti.NodeKey]share
	swept time.Time
	slots chan struct{} // costly questions that are being answered

	refused map[tutti.NodeKey]refused
}

// The type `refused` counts the bytes of the large gates that the server has refused to a node. Only the gates of one
// run count: the last run with a refused gate.
type refused struct {
	run   tutti.RunID
	bytes int
}

// The type `share` says how much a node had left at a certain time.
type share struct {
	left int
	at   time.Time
}

// New returns Shares in which each node has a full share.
func New() *Shares {
	return &Shares{left: map[tutti.NodeKey]share{}, refused: map[tutti.NodeKey]refused{}, slots: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))}
}

// The method `now` computes how much the node has left at the time of its argument.
func (s share) now(now time.Time) int {
	return min(CostAtOnce, s.left+int(min(now.Sub(s.at), time.Minute).Seconds()*costEach))
}

// Pay subtracts a cost from a node's share. If the share is too small, the error says when it will be large enough.
func (s *Shares) Pay(key tutti.NodeKey, cost int, now time.Time) error {
	return s.take(key, cost, cost, now)
}

// Owe subtracts a cost from a node's share if the share is not negative. The share may become negative. Without Owe,
// a node could pay for the work of an answer again and again and never have enough left for the bytes of the answer.
func (s *Shares) Owe(key tutti.NodeKey, cost int, now time.Time) error {
	return s.take(key, cost, 0, now)
}

// The method `take` subtracts a cost from a node's share, but only if the share is at least `least`.
func (s *Shares) take(key tutti.NodeKey, cost, least int, now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.swept) > time.Minute { // after this time without a question, a node has its full share
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

// Left returns what a node has left. Left returns a negative number if the node is in debt.
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
	return s.Pay(key, CostOfQuestion(len(payload)), time.Now())
}

// CostOfQuestion returns the cost of reading a question with this many bytes.
func CostOfQuestion(size int) int { return costOfCall + costOfByte*size }

// ReadGate pays for reading a gate.
func (s *Shares) ReadGate(key tutti.NodeKey, payload []byte) error {
	return s.Pay(key, CostOfGate(len(payload)), time.Now())
}

// CostOfGate returns the cost of reading a gate with this many bytes.
func CostOfGate(size int) int { return costOfCall + size/BytesOfCost }

// CostOfDigest returns the cost of the digest of this many bytes. A comparison takes as long as the digest of about 64
// bytes.
func CostOfDigest(size int) int { return costOfCall + size/64 }

// CostOfServed returns the cost of the exports that a node's Puppet Server has reported: the cost of reading them,
// and the cost of the decision about each of them.
func CostOfServed(size, count int) int { return CostOfGate(size) + costOfExport*count }

// Refuse records that the server has refused a gate of this many bytes to a run.
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

// Refused returns the size in bytes of the gates that a run sent and the server refused.
func (s *Shares) Refused(key tutti.NodeKey, run tutti.RunID) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if had := s.refused[key]; had.run == run {
		return had.bytes
	}
	return 0
}

// Enter waits until the server may answer a costly question. The caller must call `leave`.
func (s *Shares) Enter(ctx context.Context) (leave func(), err error) {
	select {
	case s.slots <- struct{}{}:
		return func() { <-s.slots }, nil
	case <-ctx.Done():
		return nil, tutti.Wrap(tutti.CodeDeadline, context.Cause(ctx), "waiting for other nodes' questions")
	}
}
