package api

import (
	"time"

	"github.com/tutti-project/tutti"
)

// AskCode names the code of an environment: the one that was pushed last, or the one before.
type AskCode struct {
	Environment string `json:"environment,omitempty"` // empty: the fleet file's
	Before      bool   `json:"before,omitempty"`
	Path        string `json:"path,omitempty"` // in the code; only for ReadCode
}

// CodeShown is the code of an environment.
type CodeShown struct {
	Environment string      `json:"environment"`
	Pushed      CodeVersion `json:"pushed"`
	// Held: only Canary nodes run with it by themselves before it is released.
	Held   bool `json:"held,omitempty"`
	Canary int  `json:"canary,omitempty"`
	// Signed and Plans are the signatures of code keys for the code that was pushed, and for the fleet file.
	Signed SignedBy `json:"signed,omitzero"`
	Plans  SignedBy `json:"plans,omitzero"`
	// Goes is the code with which nodes run by themselves; empty: there is none yet.
	Goes tutti.Digest `json:"goes,omitempty"`
	// Before is the code before. While code is held, that is the code with which nodes run by themselves, else the
	// code that was pushed before. nil: the log knows no such code.
	Before  *CodeVersion `json:"before,omitempty"`
	Changes []CodeChange `json:"changes,omitempty"` // from Before to Pushed
	// Unknown says why the changes cannot be told.
	Unknown string `json:"unknown,omitempty"`
	// Have is how many nodes had Pushed in their last run in mode apply. OtherNodes is how many nodes of the
	// environment had other code, and Others are the first of them.
	Have       int              `json:"have"`
	OtherNodes int              `json:"other_nodes"`
	Others     []tutti.NodeName `json:"others,omitempty"`
}

// SignedBy says with which counter something was signed, and by which keys; zero: it was not signed.
type SignedBy struct {
	Counter uint64         `json:"counter,omitempty"`
	Keys    []tutti.Digest `json:"keys,omitempty"`
}

// CodeVersion is code and who pushed it.
type CodeVersion struct {
	Code  tutti.Digest `json:"code"`
	At    time.Time    `json:"at"`
	By    string       `json:"by"`
	Files int          `json:"files"`
	Bytes int64        `json:"bytes"`
}

// CodeChange is how a file of the code differs from the one before.
type CodeChange struct {
	Path   string       `json:"path"`
	Change ChangeOfFile `json:"change"`
}

// ChangeOfFile says how a file was changed.
type ChangeOfFile string

// Of a file: its content, its mode or where its link leads.
const (
	FileAdded   ChangeOfFile = "added"
	FileChanged ChangeOfFile = "changed"
	FileRemoved ChangeOfFile = "removed"
)

// CodeRead is a file of the code, or a list of the files below one of its directories.
type CodeRead struct {
	Code    tutti.Digest              `json:"code"`
	Path    string                    `json:"path"`
	File    tutti.CodeFile            `json:"file,omitzero"`
	Content []byte                    `json:"content,omitempty"` // of a file that is no link
	Below   map[string]tutti.CodeFile `json:"below,omitempty"`   // by path from the top of the code; of a directory
}
