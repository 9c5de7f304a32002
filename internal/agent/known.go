package agent

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/durable"
	"github.com/tutti-project/tutti/internal/excerpt"
)

// knownAnswers keeps the last answer to every question that this node's runs asked. Runs use these
// answers while the server is away. A missing answer is not an empty answer. If a question is missing
// here, the agent cannot answer it.
type knownAnswers struct {
	dir string

	mu            sync.Mutex
	puppetVersion string
}

func (k *knownAnswers) path(q tutti.Query) string {
	return filepath.Join(k.dir, tutti.DigestOf([]byte(queryKey(q))).Hex()+".json")
}

// The method `keep` notes an answer. The known answers are a cache. If an answer is lost, a run may
// have to wait.
func (k *knownAnswers) keep(q tutti.Query, answer any) {
	raw, err := seal(answer)
	if err != nil {
		return
	}
	tmp := k.path(q) + ".new"
	if os.WriteFile(tmp, raw, 0o600) == nil {
		_ = os.Rename(tmp, k.path(q))
	}
}

// The method `last` reads the last answer into the argument `out`. The method returns false if
// there is no answer or if the answer cannot be read. After a power failure, a file may contain
// only half an answer.
func (k *knownAnswers) last(q tutti.Query, out any) bool {
	raw, err := excerpt.Read(k.path(q), maxSealed)
	return err == nil && unseal(k.path(q), raw, out) == nil
}

// The method `forget` removes an answer that is about to change. The answer stays removed after a
// power failure.
func (k *knownAnswers) forget(q tutti.Query) error {
	err := os.Remove(k.path(q))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return cmp.Or(err, durable.SyncDir(k.dir))
}

// The known answers contain the whole hiera level under the key hieraQuery.
var hieraQuery = tutti.Query{Kind: tutti.QueryHiera}

func (k *knownAnswers) setPuppet(version string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.puppetVersion = version
}

// The method `puppet` returns the Puppet version that the latest run reported.
func (k *knownAnswers) puppet() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.puppetVersion
}
