package operators

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/explain"
	"github.com/tutti-project/tutti/internal/fleet"
	"github.com/tutti-project/tutti/internal/fold"
	"github.com/tutti-project/tutti/internal/server/core"
)

// Matches decides which nodes are in the groups with `where` (ADR 0041). It reads facts beside the writer, and appends only
// what has changed.
type Matches struct {
	*Operators
	mu   sync.Mutex
	done map[tutti.NodeName]basis // what the last decision about each node rests on
	// looked is true after a complete look, and at is Core.MatchInputs before this look.
	looked bool
	at     uint64
	// matcher decides the conditions with the digest `of`.
	matcher *fleet.Matcher
	of      tutti.Digest
}

// NewMatches returns a Matches that has decided nothing yet.
func NewMatches(s *Operators) *Matches {
	return &Matches{Operators: s, done: map[tutti.NodeName]basis{}}
}

// basis is everything that a decision about a node rests on.
type basis struct {
	conditions tutti.Digest
	key        tutti.NodeKey
	joined     int64
	facts      tutti.Digest // the content
	left       string       // why the node has left out its facts
	classified int64        // when the answer of the ENC changed; 0 if there is no answer
	observed   bool
}

func basisOf(s *fold.State, n *fold.Node) basis {
	b := basis{conditions: s.Registry.Conditions.Digest(), key: n.Key, joined: n.JoinedAt.UnixNano(), observed: s.WhyObserved(n.Node) != ""}
	if held := n.Inventory.Part(tutti.InventoryFacts); held != nil {
		b.facts, b.left = held.Blob, held.Left
	}
	if n.Classified != nil {
		b.classified = n.ClassifiedAt.UnixNano()
	}
	return b
}

const (
	matchPause   = 200 * time.Millisecond // between two looks
	matchAgain   = 30 * time.Second       // after an error
	matchesAtOne = 200                    // decisions in one transaction
	matchOne     = 500 * time.Millisecond // for the conditions of one node, which chooses how large its facts are
	matchSome    = time.Second            // after this, the decisions so far are stored
	// matchPatience is how long a job waits for the decisions about its groups.
	matchPatience = 10 * time.Second
)

// Run decides until ctx ends.
func (m *Matches) Run(ctx context.Context) {
	for ctx.Err() == nil {
		appended := m.Writer.Appended()
		var again <-chan time.Time
		if err := m.Once(ctx); err != nil && ctx.Err() == nil {
			m.Opts.Logger.Warn("it is not decided which nodes are in groups with `where`; the last decisions stay", "error", err)
			again = time.After(matchAgain)
		}
		select {
		case <-ctx.Done():
			return
		case <-again:
		case <-appended:
		}
		select {
		case <-ctx.Done():
		case <-time.After(matchPause):
		}
	}
}

// asked is a node about which a decision is due.
type asked struct {
	basis basis
	known fleet.Known
	held  *tutti.Held
}

// Once decides about each node for which something has changed since the last call. It returns the first error. Then the
// other nodes are decided, and the next call tries again.
func (m *Matches) Once(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := m.MatchInputs.Load()
	if m.looked && at == m.at {
		return nil
	}
	var due []asked
	var conditions *fleet.Conditions
	if err := m.Look(ctx, func(v explain.View) error {
		if conditions = v.Registry.Conditions; conditions == nil {
			return nil
		}
		for name, n := range v.Registry.Nodes {
			if b := basisOf(v.State, n); m.done[name] != b {
				due = append(due, subject(b, n))
			}
		}
		maps.DeleteFunc(m.done, func(name tutti.NodeName, _ basis) bool { return v.Registry.Nodes[name] == nil })
		return nil
	}); err != nil {
		return err
	}
	if conditions.Digest() != m.of {
		m.matcher, m.of = conditions.Matcher(), conditions.Digest()
	}
	slices.SortFunc(due, func(a, b asked) int { return cmp.Compare(a.known.Node, b.known.Node) })
	var first error
	complete := true
	for len(due) > 0 {
		count, all, err := m.some(ctx, due[:min(matchesAtOne, len(due))])
		if err != nil && first == nil {
			first = err
		}
		if complete = complete && all; ctx.Err() != nil {
			return ctx.Err()
		}
		if count == 0 {
			return first
		}
		due = due[count:]
	}
	if complete {
		m.looked, m.at = true, at
	}
	return first
}

// The function `subject` returns what a decision needs of a node.
func subject(b basis, n *fold.Node) asked {
	out := asked{basis: b, held: n.Inventory.Part(tutti.InventoryFacts), known: fleet.Known{Node: n.Node, Certificate: n.Certificate, FactsOf: b.facts}}
	switch {
	case b.left != "":
		out.known.NoFacts = "the node sends no facts: " + b.left
	case b.observed:
		out.known.NoFacts = "the node is observed, so it sends no facts"
	default:
		out.known.NoFacts = "the server has no facts of the node: a node sends them after its next run"
	}
	out.known.NoClasses = "the server has no answer of an ENC about the node"
	if n.Classified != nil {
		out.known.Classes = append([]string{}, slices.Sorted(maps.Keys(n.Classified.Classes))...)
	}
	return out
}

// The method `some` decides about some nodes and stores the decisions. It returns for how many nodes it has tried this. If an
// error is not about one node only, it has tried it for none.
func (m *Matches) some(ctx context.Context, due []asked) (count int, all bool, first error) {
	began := time.Now()
	found := make([][]tutti.Match, len(due))
	skip := make([]bool, len(due))
	for i := range due {
		a := &due[i]
		if m.matcher.ReadsFacts() && a.basis.facts != "" {
			facts, err := explain.ReadFacts(ctx, m.Opts.Blobs, a.held)
			switch code := tutti.CodeOf(err); {
			case err == nil:
				a.known.Facts = facts
			case code == tutti.CodeDamaged || code == tutti.CodeInvalid:
				a.known.NoFacts = err.Error()
			default:
				skip[i] = true
				if first == nil {
					first = tutti.Wrap("", err, "the facts of %s", a.known.Node)
				}
				count = i + 1
				continue
			}
		}
		within, cancel := context.WithTimeout(ctx, matchOne)
		found[i] = m.matcher.Match(within, a.known)
		if cancel(); ctx.Err() != nil {
			return 0, false, ctx.Err()
		}
		if count = i + 1; time.Since(began) > matchSome {
			break
		}
	}
	due = due[:count]
	var stored []int
	err := m.Do(ctx, func(tx *core.Tx) error {
		stored = stored[:0]
		for i, a := range due {
			n := tx.Registry.Nodes[a.known.Node]
			if skip[i] || n == nil || basisOf(tx.State, n) != a.basis { // the next look decides again
				continue
			}
			stored = append(stored, i)
			is := since(found[i], n, tx.Now)
			if was := tx.Registry.Matched(n); was != nil && slices.EqualFunc(was.Matches, is, sameMatch) {
				continue
			}
			tx.Emit(core.ActorServer, &tutti.NodeMatched{Node: n.Node, Conditions: m.of, Matches: is})
			tx.MayCut()
		}
		return nil
	})
	if err != nil {
		return 0, false, err
	}
	for _, i := range stored {
		m.done[due[i].known.Node] = due[i].basis
	}
	return count, len(stored) == len(due), first
}

func sameMatch(a, b tutti.Match) bool { return a.Group == b.Group && a.Unknown == b.Unknown }

// The function `since` adds the time to new matches. A match that was there before keeps its time and its facts.
func since(found []tutti.Match, n *fold.Node, now time.Time) []tutti.Match {
	out := slices.Clone(found)
	for i := range out {
		if was := n.LastMatch(out[i].Group); sameMatch(was, out[i]) {
			out[i] = was
		} else {
			out[i].Since = now.UTC()
		}
	}
	return out
}

// awaitMatches waits until the server has decided which nodes are in the groups of a new job, for example after a push of
// the fleet file. If this takes too long, the job names the nodes that are not decided.
func (s *Operators) awaitMatches(ctx context.Context, in api.StartJob) error {
	timer := time.NewTimer(matchPatience)
	defer timer.Stop()
	for {
		appended, open := s.Writer.Appended(), false
		// A job does not wait for readers, so the writer looks.
		if err := s.do(ctx, func(tx *tx) error {
			for _, group := range targetsOf(tx.Fleet(), in) {
				for _, u := range tx.Undecided(group) {
					open = open || u.Why == fold.NotMatched
				}
			}
			return nil
		}); err != nil || !open {
			return err
		}
		select {
		case <-appended:
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// targetsOf returns the targets of a job.
func targetsOf(f tutti.Fleet, in api.StartJob) []string {
	if in.Converge != nil {
		return []string{in.Converge.Target}
	}
	var out []string
	for _, p := range f.Plans {
		for _, st := range p.Steps {
			if p.Name == in.Plan {
				out = append(out, st.Target())
			}
		}
	}
	return out
}

// allDecided refuses a plan with a run step on a group if nobody knows whether some nodes are in it. A list of nodes
// without them would look complete.
func (tx *tx) allDecided(plan tutti.Plan) error {
	for _, st := range plan.Steps {
		if st.ActsOn() != tutti.NodesListed {
			continue
		}
		if why := tx.WhyUndecided(st.Target()); why != "" {
			return tutti.Errorf(tutti.CodeConflict, "plan %s, step %s: %s; if facts are missing, let these nodes send them with: tutti converge --prove; or let the condition check for what not all nodes have", plan.Name, st.Name, why)
		}
	}
	return nil
}

// noSecretReaders refuses a fleet file in which a group that may read a secret gets `where`.
func (tx *tx) noSecretReaders(f tutti.Fleet) error {
	if fleet.NewConditions(f, "") == nil {
		return nil
	}
	for _, secret := range tx.Data.Secrets() {
		for _, target := range secret.Secret.For {
			name, _ := tutti.Target(target)
			if g := f.GroupOf(name); g != nil && !g.Gives() {
				return tutti.Errorf(tutti.CodeConflict, "group %s has `where`, so its nodes may read no secret, and secret %s is for this group: set the secret for other nodes first, or name the group otherwise", name, secret.View.Key)
			}
		}
	}
	return nil
}
