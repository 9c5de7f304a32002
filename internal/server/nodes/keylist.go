package nodes

import (
	"crypto/sha256"
	"encoding/json"
	"slices"
	"sync"

	"github.com/tutti-project/tutti"
)

const (
	// maxShared is the largest size, in bytes, of all shared lists together. maxSharedList is the largest size of one list.
	maxShared     = 16 << 20
	maxSharedList = 1 << 20
	// sharedKey is the size of a decoded key without its texts. The texts are at most as long as the JSON.
	sharedKey = 64
)

// The type `keyLists` decodes lists of hiera keys. Nodes of one role send the same list, and a node sends it again each time
// that it asks its gate. So keyLists remembers the decoded lists by the digest of their JSON. The type is safe for
// concurrent use. Nobody may change a list that keyLists has returned.
type keyLists struct {
	mu    sync.Mutex
	known map[[sha256.Size]byte][]tutti.KeyRead
	size  int // of all lists in `known`
}

// The method `decode` returns the keys in a list.
func (l *keyLists) decode(what string, raw json.RawMessage) ([]tutti.KeyRead, error) {
	digest := sha256.Sum256(raw)
	l.mu.Lock()
	keys, known := l.known[digest]
	l.mu.Unlock()
	if known {
		return keys, nil
	}
	keys, err := elements[tutti.KeyRead](what, raw, maxKeys)
	if err == nil {
		l.share(digest, slices.Clip(keys), len(raw)+sharedKey*len(keys))
	}
	return keys, err
}

// The method `share` remembers a list. If there are too many lists, the method first forgets all of them: the lists of the
// roles come back with the next run of each role.
func (l *keyLists) share(digest [sha256.Size]byte, keys []tutti.KeyRead, size int) {
	if size > maxSharedList {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known == nil || l.size+size > maxShared {
		l.known, l.size = map[[sha256.Size]byte][]tutti.KeyRead{}, 0
	}
	if _, known := l.known[digest]; !known {
		l.size += size
	}
	l.known[digest] = keys
}
