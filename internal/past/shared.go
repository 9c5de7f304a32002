package past

import (
	"runtime"
	"sync"
	"weak"

	"github.com/tutti-project/tutti"
)

// sharedAsked stores the questions of runs in memory. Runs with equal questions share one
// copy, and runs with equal absent hiera keys share one list of them. Sharing is needed
// because the fold has thousands of runs of only a few roles. The type is safe for concurrent use.
// Nobody may change content that sharedAsked has returned.
type sharedAsked struct {
	mu     sync.Mutex
	asked  map[tutti.Digest]weak.Pointer[tutti.Questions]
	absent map[tutti.Digest]*keySet
}

// keySet contains the hiera keys in a blob of absent keys.
type keySet struct {
	keys  []string
	users int // how many tutti.Questions use this list of keys
}

func newSharedAsked() *sharedAsked {
	return &sharedAsked{asked: map[tutti.Digest]weak.Pointer[tutti.Questions]{}, absent: map[tutti.Digest]*keySet{}}
}

// known returns the questions in the blob with this digest. It returns nil if no code uses these questions now.
func (s *sharedAsked) known(digest tutti.Digest) *tutti.Questions {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[digest].Value()
}

// The method `keys` returns the keys in the blob `absent`. It returns nil if no code uses these keys now.
func (s *sharedAsked) keys(absent tutti.Digest) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.absent[absent]; a != nil {
		return a.keys
	}
	return nil
}

// The method `share` returns the shared copy of the questions with this digest. If there is no copy
// yet, `content` becomes the shared copy.
func (s *sharedAsked) share(digest tutti.Digest, content *tutti.Questions) *tutti.Questions {
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

// unused stands for questions that no code uses any more. It contains the digests of the questions
// and of their absent keys.
type unused struct{ asked, absent tutti.Digest }

func (s *sharedAsked) forget(u unused) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked[u.asked].Value() == nil { // the method share has not added these questions again in the meantime
		delete(s.asked, u.asked)
	}
	if a := s.absent[u.absent]; a != nil {
		if a.users--; a.users == 0 {
			delete(s.absent, u.absent)
		}
	}
}
