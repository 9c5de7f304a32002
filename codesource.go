package tutti

import (
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// CodeSource says where pushed code comes from. It is the word of the operator who pushed the code: the digest of the
// code does not cover it, and nodes do not get it.
type CodeSource struct {
	Repository string    `json:"repository,omitempty"` // without user and password
	Ref        string    `json:"ref,omitempty"`        // the branch or the tag
	Commit     string    `json:"commit,omitempty"`     // in hexadecimal digits
	Author     string    `json:"author,omitempty"`
	Subject    string    `json:"subject,omitempty"`
	At         time.Time `json:"at,omitzero"` // the time of the commit
	// Dirty is true if the directory had files or changes that the commit does not have.
	Dirty bool `json:"dirty,omitempty"`
}

// MaxSourceText bounds each text of a CodeSource, in bytes.
const MaxSourceText = 300

// Validate refuses texts that are too long, that are no UTF-8 or that have control characters.
func (s CodeSource) Validate() error {
	for _, text := range []string{s.Repository, s.Ref, s.Commit, s.Author, s.Subject} {
		if len(text) > MaxSourceText || !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
			return Errorf(CodeInvalid, "source of code: %.40q: at most %d bytes of text without control characters", text, MaxSourceText)
		}
	}
	return nil
}

// Clean returns the source with texts that Validate accepts.
func (s CodeSource) Clean() CodeSource {
	for _, text := range []*string{&s.Repository, &s.Ref, &s.Commit, &s.Author, &s.Subject} {
		*text = Plain(InLine(*text), MaxSourceText)
	}
	return s
}

// Short returns the commit for people, for example `1a2b3c4d5e6f, dirty`. The text is empty if the source has no commit.
func (s *CodeSource) Short() string {
	if s == nil || s.Commit == "" {
		return ""
	}
	text := s.Commit[:min(12, len(s.Commit))]
	if s.Dirty {
		text += ", dirty"
	}
	return text
}

// CodeRetired says that the server need not keep some codes of an environment any more. If Gone is true, the environment
// has no code any more, and no job may use it.
type CodeRetired struct {
	Environment string   `json:"environment"`
	Codes       []Digest `json:"codes,omitempty"`
	Gone        bool     `json:"gone,omitempty"`
	// For an environment that is gone, Counter and Statement are those of its last push. Nodes refuse code with a lower
	// counter, also if the environment comes back.
	Counter   uint64     `json:"counter,omitempty"`
	Statement *Statement `json:"statement,omitempty"`
}

// Kind implements Body.
func (*CodeRetired) Kind() string { return "code.retired" }

// ID implements Body.
func (b *CodeRetired) ID() string { return b.Environment }

// Retires reports whether the event retires a code.
func (b *CodeRetired) Retires(code Digest) bool { return b.Gone || slices.Contains(b.Codes, code) }

// CodeProblem is a problem that a check of code has found before a push.
type CodeProblem struct {
	Level   ProblemLevel `json:"level"`
	File    string       `json:"file"`           // from the top of the code
	Line    int          `json:"line,omitempty"` // 0: not known
	Message string       `json:"message"`
}

// MaxCodeProblems bounds the problems in one answer of a node.
const MaxCodeProblems = 200

// CodeChecked is what a node says about code that it has compiled and never applies.
type CodeChecked struct {
	Problems []CodeProblem `json:"problems"`       // the errors come first
	Left     int           `json:"left,omitempty"` // how many more problems there are
}

// ProblemLevel says how bad a problem is.
type ProblemLevel string

// The levels.
const (
	ProblemError   ProblemLevel = "error"
	ProblemWarning ProblemLevel = "warning" // it may be meant, for example a class of a module that is optional
)
