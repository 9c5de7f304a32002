package classify

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tutti-project/tutti"
)

// Source is the server. It has the nodes and stores the answers.
type Source interface {
	// Classified returns the nodes to ask about, and whether there is an answer about each of them.
	Classified(ctx context.Context) (map[tutti.NodeName]bool, error)
	// Classify stores an answer. A nil answer says that there is no ENC any more.
	Classify(ctx context.Context, node tutti.NodeName, answer *tutti.Classification) error
	// Unclassified notes that the script has given no answer. The last answer stays.
	Unclassified(node tutti.NodeName, cause error)
}

// These are the pauses of a Keeper.
const (
	lookEvery  = time.Second      // between two looks for nodes that have joined
	againAfter = 30 * time.Second // after a failure; at most Config.Every
)

// Keeper keeps the answers of the script up to date.
type Keeper struct {
	Source Source
	Config Config
	Logger *slog.Logger
	// Ask is Config.Ask; a test may set another function.
	Ask func(ctx context.Context, node tutti.NodeName) (tutti.Classification, error)

	mu    sync.Mutex
	next  map[tutti.NodeName]time.Time // when the script is asked again; a node that is asked now has no entry
	busy  map[tutti.NodeName]bool
	fails map[tutti.NodeName]bool
}

// Run asks the script until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	k.next, k.busy, k.fails = map[tutti.NodeName]time.Time{}, map[tutti.NodeName]bool{}, map[tutti.NodeName]bool{}
	if k.Ask == nil {
		k.Ask = k.Config.Ask
	}
	free := make(chan struct{}, k.Config.Parallel)
	var running sync.WaitGroup
	defer running.Wait()
	timer := time.NewTicker(lookEvery)
	defer timer.Stop()
	for {
		nodes, err := k.Source.Classified(ctx)
		if err != nil && ctx.Err() == nil {
			k.Logger.Warn("the nodes for the ENC are not known", "error", err)
		}
		for _, node := range k.due(nodes, time.Now()) {
			select {
			case free <- struct{}{}:
			case <-ctx.Done():
				return
			}
			running.Go(func() {
				k.one(ctx, node)
				<-free
			})
		}
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
	}
}

// Forget removes the answers of a former ENC.
func Forget(ctx context.Context, from Source) error {
	nodes, err := from.Classified(ctx)
	if err != nil {
		return err
	}
	for _, node := range slices.Sorted(maps.Keys(nodes)) {
		if !nodes[node] {
			continue
		}
		if err := from.Classify(ctx, node, nil); err != nil {
			return err
		}
	}
	return nil
}

// The method `due` returns the nodes to ask about now. Nodes without an answer come first, because they cannot run.
func (k *Keeper) due(nodes map[tutti.NodeName]bool, now time.Time) []tutti.NodeName {
	k.mu.Lock()
	defer k.mu.Unlock()
	var out []tutti.NodeName
	for node := range nodes {
		if !k.busy[node] && !k.next[node].After(now) {
			out = append(out, node)
		}
	}
	for node := range k.next {
		if _, joined := nodes[node]; !joined && nodes != nil {
			delete(k.next, node)
			delete(k.fails, node)
		}
	}
	slices.SortFunc(out, func(a, b tutti.NodeName) int {
		return cmp.Or(boolean(nodes[a])-boolean(nodes[b]), k.next[a].Compare(k.next[b]), cmp.Compare(a, b))
	})
	// The next look must see nodes that join meanwhile, so a look begins only as many calls as fit.
	out = out[:min(len(out), 4*k.Config.Parallel)]
	for _, node := range out {
		k.busy[node] = true
	}
	return out
}

func boolean(b bool) int {
	if b {
		return 1
	}
	return 0
}

// The method `one` asks about one node.
func (k *Keeper) one(ctx context.Context, node tutti.NodeName) {
	answer, err := k.Ask(ctx, node)
	if err == nil && ctx.Err() == nil {
		err = k.Source.Classify(ctx, node, &answer)
	}
	if ctx.Err() != nil { // the server ends, so this is no failure of the script
		return
	}
	k.mu.Lock()
	delete(k.busy, node)
	failed := k.fails[node]
	if k.next[node] = time.Now().Add(k.Config.Every); err != nil {
		k.next[node] = time.Now().Add(min(againAfter, k.Config.Every))
	}
	k.fails[node] = err != nil
	k.mu.Unlock()
	if err == nil {
		return
	}
	k.Source.Unclassified(node, err)
	if !failed { // one line for each time that it begins to fail
		k.Logger.Warn("the ENC does not answer; the last answer stays", "node", node, "error", err)
	}
}
