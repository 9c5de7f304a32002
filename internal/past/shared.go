package past

import (
	"runtime"
	"sync"
	"weak"

	"github.com/tutti-project/tutti"
)

// sharedAsked holds what runs asked once for all runs that asked the same, and absent
// hiera keys once for all runs that missed the same, as long as one user keeps them: the
// fold keeps thousands of runs of a few roles. It may be used from many
// goroutines at once. Content that it has returned is never changed.
type sharedAsked struct {
	mu     sync.Mutex
	asked  map[tutti.Digest]weak.Pointer[tutti.Asked]
	absent map[tutti.Digest]*keySet
}

// keySet is the content of an absent blob.
type keySet struct {
	keys  []string
	users int // how many asked use it
}

func newSharedAsked() *sharedAsked {
	return &sharedAsked{asked: map[tutti.Digest]weak.Pointer[tutti.Asked]{}, absent: map[tutti.Digest]*keySet{}}
}

// known returns the content of a digest; nil: no user keeps it.
func (s *sharedAsked) known(digest tutti.Digest) *tutti.Asked {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[digest].Value()
}

// keys returns the absent keys of a digest; nil: no user keeps them.
func (s *sharedAsked) keys(absent tutti.Digest) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.absent[absent]; a != nil {
		return a.keys
	}
	return nil
}

// share returns the one content of a digest: the known one, otherwise this one.
func (s *sharedAsked) share(digest tutti.Digest, content *tutti.Asked) *tutti.Asked {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.asked[digest].Value(); known != nil {
		return known
	}
	if content.Absent != "" {
		a := s.absent[content.Absent]
		if a == nil {
			a = &keySet{keys: content.Keys}
			s.absent[content.Absent] = a
		}
		a.users++
		content.Keys = a.keys
	}
	s.asked[digest] = weak.Make(content)
	runtime.AddCleanup(content, s.forget, unused{digest, content.Absent})
	return content
}

// unused is what no user keeps any more.
type unused struct{ asked, absent tutti.Digest }

func (s *sharedAsked) forget(u unused) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked[u.asked].Value() == nil { // not known again meanwhile
		delete(s.asked, u.asked)
	}
	if a := s.absent[u.absent]; a != nil {
		if a.users--; a.users == 0 {
			delete(s.absent, u.absent)
		}
	}
}
