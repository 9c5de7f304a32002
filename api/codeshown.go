package api

import (
	"cmp"
	"slices"
	"time"

	"github.com/tutti-project/tutti"
)

// CodeQuery names the code of an environment: the code that was pushed last, or the code before it.
type CodeQuery struct {
	Environment string `json:"environment,omitempty"` // empty for the environment in the fleet file
	Before      bool   `json:"before,omitempty"`
	// Code is a digest, or the beginning of one with at least MinDigest hexadecimal digits. It names one code of the
	// environment; if Environment is empty, of all environments. ShowCode does not use it.
	Code string `json:"code,omitempty"`
	Path string `json:"path,omitempty"` // Path is a path in the code. Only ReadCode uses it.
}

// CodeShown is the code of an environment.
type CodeShown struct {
	Environment string      `json:"environment"`
	Pushed      CodeVersion `json:"pushed"`
	// Held is true if the code waits for its release. Before the release only the canaries run the code by themselves.
	// Canary is the number of canaries.
	Held   bool `json:"held,omitempty"`
	Canary int  `json:"canary,omitempty"`
	// Signed has the signatures of code keys for the pushed code. Plans has the signatures for the fleet file.
	Signed SignedBy `json:"signed,omitzero"`
	Plans  SignedBy `json:"plans,omitzero"`
	// The field Goes is the code that nodes run by themselves. Goes is empty if there is no such
	// code yet.
	Goes tutti.Digest `json:"goes,omitempty"`
	// The field Before is the earlier code. While the pushed code is held, Before is the code that nodes run by
	// themselves. If the pushed code is not held, Before is the code that was pushed earlier. Before is nil if
	// the log has no earlier code.
	Before  *CodeVersion `json:"before,omitempty"`
	Changes []CodeChange `json:"changes,omitempty"` // from Before to Pushed
	// Unknown says why the server cannot compute the changes.
	Unknown string `json:"unknown,omitempty"`
	// The field Have is the number of nodes whose last run in mode apply used the code in Pushed. OtherNodes is the
	// number of nodes of the environment whose last run used other code. The field Others lists the first of these
	// nodes.
	Have       int              `json:"have"`
	OtherNodes int              `json:"other_nodes"`
	Others     []tutti.NodeName `json:"others,omitempty"`
}

// SignedBy is the counter of a signed statement, and the keys that signed it. SignedBy is zero if there
// is no signature.
type SignedBy struct {
	Counter uint64         `json:"counter,omitempty"`
	Keys    []tutti.Digest `json:"keys,omitempty"`
}

// CodeVersion is code, with the time and the operator of its push.
type CodeVersion struct {
	Code  tutti.Digest `json:"code"`
	At    time.Time    `json:"at"`
	By    string       `json:"by"`
	Files int          `json:"files"`
	Bytes int64        `json:"bytes"`
	// Source is nil if the operator's machine did not say where the code comes from.
	Source *tutti.CodeSource `json:"source,omitempty"`
}

// MinDigest is how many hexadecimal digits a CodeQuery needs to name code.
const MinDigest = 6

// MaxCodeRead is the largest file of code that an operator can read, in bytes.
const MaxCodeRead = 8 << 20

// CodeChange says how a file differs from the same file in the code before.
type CodeChange struct {
	Path   string       `json:"path"`
	Change ChangeOfFile `json:"change"`
}

// ChangeOfFile says how a file has changed.
type ChangeOfFile string

// A file has changed if its content, its mode or the target of its link has changed.
const (
	FileAdded   ChangeOfFile = "added"
	FileChanged ChangeOfFile = "changed"
	FileRemoved ChangeOfFile = "removed"
)

// ChangesOf returns the files that differ between two codes, sorted by path.
func ChangesOf(old, now map[string]tutti.CodeFile) []CodeChange {
	var out []CodeChange
	for name, f := range now {
		switch was, there := old[name]; {
		case !there:
			out = append(out, CodeChange{Path: name, Change: FileAdded})
		case was != f:
			out = append(out, CodeChange{Path: name, Change: FileChanged})
		}
	}
	for name := range old {
		if _, there := now[name]; !there {
			out = append(out, CodeChange{Path: name, Change: FileRemoved})
		}
	}
	slices.SortFunc(out, func(a, b CodeChange) int { return cmp.Compare(a.Path, b.Path) })
	return out
}

// CodeRead is a file of the code, or a list of the files below one of its directories.
type CodeRead struct {
	Code    tutti.Digest   `json:"code"`
	Path    string         `json:"path"`
	File    tutti.CodeFile `json:"file,omitzero"`
	Content []byte         `json:"content,omitempty"` // content of a file that is not a link
	// The field Below lists the files below a directory. The keys are paths from the top of the
	// code.
	Below map[string]tutti.CodeFile `json:"below,omitempty"`
}
