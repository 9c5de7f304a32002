package tutti

import (
	"encoding/json"
	"io/fs"
	"path"
	"strings"
	"time"
)

// The operations that a node asks of the server over the bus, and what goes
// with them. The sender's key says who it is; no message names its node.
const (
	OpClaim    = "claim"   // Claim → Claimed
	OpGate     = "gate"    // Gate → Gated
	OpAsk      = "ask"     // Ask → Answered
	OpHiera    = "hiera"   // HieraAsk → HieraData
	OpPublish  = "publish" // Publish → nothing
	OpResult   = "result"  // Result → nothing
	OpBlobPut  = "blobput" // content → BlobStored
	OpBlobGet  = "blobget" // BlobGet → content
	OpCode     = "code"    // CodeGet → SignedCode
	OpBeat     = "beat"    // Beat, no reply
	OpLive     = "live"    // []Live, no reply
	OpLeave    = "leave"   // Leave → nothing
	OpRenew    = "renew"   // Renew → Renewed
	RingClaim  = "claim"   // server → node: something may be there to claim
	RingCancel = "cancel"  // server → node: CancelRun
)

// Claim asks for the node's next run.
type Claim struct{}

// Claimed carries the order, or none. The same order is given again until its
// result is there: a node that has its marker follows it on, and starts
// nothing twice.
type Claimed struct {
	Order *Order `json:"order,omitempty"`
}

// Gate is what a compiled run hands over before it applies anything.
type Gate struct {
	Run     RunID     `json:"run"`
	Catalog Digest    `json:"catalog"`
	Facts   Digest    `json:"facts,omitempty"`
	Reads   []Read    `json:"reads"`
	Keys    []KeyRead `json:"keys"`
	Exports []Export  `json:"exports"`
	Values  []string  `json:"values"` // the keys that the catalog wants published
}

// Gated is the gate's answer.
type Gated struct {
	Verdict GateVerdict `json:"verdict"`
	Reason  string      `json:"reason,omitempty"`
}

// Validate refuses an answer that is neither go nor stop.
func (g Gated) Validate() error {
	if g.Verdict != GateGo && g.Verdict != GateStop {
		return Errorf(CodeInternal, "the server's answer at the gate is %q, neither go nor stop", string(g.Verdict))
	}
	return nil
}

// Ask is one question on behalf of a run.
type Ask struct {
	Run   RunID `json:"run"`
	Query Query `json:"query"`
}

// Answered is the answer, and the sequence of the log at which it was true.
type Answered struct {
	Found   bool            `json:"found"`
	Value   json.RawMessage `json:"value,omitempty"`
	Exports []Export        `json:"exports,omitempty"`
	Digest  Digest          `json:"digest,omitempty"`
	Seq     uint64          `json:"seq"`
}

// Validate refuses what cannot be an answer to the question: no answer is not an
// empty answer.
func (a Answered) Validate(q Query) error {
	var good bool
	switch q.Kind {
	case QueryCollect:
		good = a.Found && len(a.Value) == 0 && a.Digest.Validate() == nil
	case QueryPublished: // it is no read and has no digest
		good = a.Found == (len(a.Value) > 0)
	default:
		good = a.Found == (len(a.Value) > 0) && a.Found == (a.Digest.Validate() == nil)
	}
	if !good || a.Seq == 0 {
		return Errorf(CodeInternal, "the server's answer to a %s question is none: found %t, %d bytes, digest %q, as of %d", q.Kind, a.Found, len(a.Value), string(a.Digest), a.Seq)
	}
	return nil
}

// UnmarshalJSON refuses an answer that does not say whether there is one.
func (a *Answered) UnmarshalJSON(raw []byte) error {
	type fields Answered
	var in fields
	said := struct {
		*fields
		Found *bool `json:"found"`
	}{fields: &in}
	if err := json.Unmarshal(raw, &said); err != nil {
		return err
	}
	if said.Found == nil {
		return Errorf(CodeInternal, "an answer that does not say whether it was found")
	}
	in.Found = *said.Found
	*a = Answered(in)
	return nil
}

// HieraAsk asks for everything that the hiera level has for the node.
type HieraAsk struct {
	Run RunID `json:"run"`
}

// HieraData is the whole hiera level of one node, with a digest per key.
type HieraData struct {
	Data    map[string]json.RawMessage `json:"data"`
	Digests map[string]Digest          `json:"digests"`
	Seq     uint64                     `json:"seq"`
}

// Validate refuses what cannot be the level of a node: no answer is not an empty
// one.
func (h HieraData) Validate() error {
	good := h.Seq > 0 && h.Data != nil && len(h.Data) == len(h.Digests)
	for key := range h.Data {
		good = good && h.Digests[key].Validate() == nil
	}
	if !good {
		return Errorf(CodeInternal, "the server's hiera data is none: %d keys, %d digests, as of %d", len(h.Data), len(h.Digests), h.Seq)
	}
	return nil
}

// Publish sets (or, with Withdraw, unsets) a value on behalf of a run.
type Publish struct {
	Run      RunID           `json:"run"`
	Key      string          `json:"key"`
	Value    json.RawMessage `json:"value,omitempty"`
	Withdraw bool            `json:"withdraw,omitempty"`
}

// Leave asks to be no node any more: what it published is withdrawn, and its key
// ends within seconds. CodeConflict while a run of it goes on.
type Leave struct{}

// BlobStored answers OpBlobPut.
type BlobStored struct {
	Digest Digest `json:"digest"`
}

// BlobGet asks for a file of the code that a run of this node needs.
type BlobGet struct {
	Run    RunID  `json:"run"`
	Digest Digest `json:"digest"`
}

// CodeGet asks for the signed manifest of the code that a run needs.
type CodeGet struct {
	Run  RunID  `json:"run"`
	Code Digest `json:"code"`
}

// SignedCode is a manifest and its signature by the operator's code-signing
// key. The manifest's digest is the code's.
type SignedCode struct {
	Manifest  []byte `json:"manifest"`
	Signature []byte `json:"signature"`
}

// CodeFile is one file of a manifest. Links point inside the environment.
type CodeFile struct {
	Digest Digest `json:"digest,omitempty"`
	Size   int64  `json:"size,omitempty"`
	Exec   bool   `json:"exec,omitempty"`
	Link   string `json:"link,omitempty"`
}

// CodeManifest lists the files of an environment by their slash-separated
// path. Its canonical encoding is encoding/json's (maps are sorted).
type CodeManifest struct {
	Version     int                 `json:"v"`
	Environment string              `json:"environment"`
	Files       map[string]CodeFile `json:"files"`
}

// Beat says that a node is there.
type Beat struct {
	Version string    `json:"version"`
	Puppet  string    `json:"puppet,omitempty"`
	Run     RunID     `json:"run,omitempty"`     // what runs now
	Trouble string    `json:"trouble,omitempty"` // what the agent cannot do until somebody helps
	At      time.Time `json:"at"`
}

// Live is something that happens inside a run, or without one to its job (then
// it is a Message alone); it is shown and never kept.
type Live struct {
	Run      RunID     `json:"run,omitempty"`
	Node     NodeName  `json:"node,omitempty"` // set by the server
	At       time.Time `json:"at"`
	Phase    string    `json:"phase,omitempty"`
	Resource string    `json:"resource,omitempty"`
	Done     bool      `json:"done,omitempty"`
	Changed  bool      `json:"changed,omitempty"`
	Failed   bool      `json:"failed,omitempty"`
	Skipped  bool      `json:"skipped,omitempty"`
	Message  string    `json:"message,omitempty"`
	Total    int       `json:"total,omitempty"`
}

// Renew asks for a new JWT for the node's key, because the present one ends.
type Renew struct{}

// Renewed carries it.
type Renewed struct {
	JWT string `json:"jwt"`
}

// CancelRun asks the node to end a run; the run ends interrupted.
type CancelRun struct {
	Run RunID `json:"run"`
}

// maxPath is what Linux takes as a path, with room for where the tree lies.
const maxPath = 3 << 10

// Validate refuses a manifest that leads out of its own tree: absolute or
// unclean paths, links to outside, files below links.
func (m CodeManifest) Validate() error {
	if m.Version != 1 {
		return Errorf(CodeInvalid, "manifest of version %d, this release knows 1", m.Version)
	}
	if !environmentRE.MatchString(m.Environment) {
		return Errorf(CodeInvalid, "manifest: environment %q: lower-case letters, digits and '_' only, as in Puppet", m.Environment)
	}
	for name, f := range m.Files {
		if strings.Contains(name+f.Link, "\x00") || len(name) > maxPath || len(f.Link) > maxPath || f.Size < 0 {
			return Errorf(CodeInvalid, "manifest: %q, link %q, %d bytes: no file system has such a file", name, f.Link, f.Size)
		}
		if !fs.ValidPath(name) || name == "." {
			return Errorf(CodeRefused, "manifest: path %q leads out of the code", name)
		}
		if f.Link == "" {
			if err := f.Digest.Validate(); err != nil {
				return Wrap(CodeInvalid, err, "manifest: %s", name)
			}
			continue
		}
		if path.IsAbs(f.Link) || climbs(f.Link) || !fs.ValidPath(path.Join(path.Dir(name), f.Link)) {
			return Errorf(CodeRefused, "manifest: link %q leads out of the code, to %q", name, f.Link)
		}
	}
	for name := range m.Files {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if _, isFile := m.Files[dir]; isFile {
				return Errorf(CodeRefused, "manifest: %q is a file and has %q below it", dir, name)
			}
		}
	}
	return nil
}

// climbs reports whether a link goes up after it went down: where it then leads
// depends on what is a link on its way.
func climbs(link string) bool {
	down := false
	for part := range strings.SplitSeq(link, "/") {
		if part == ".." && down {
			return true
		}
		down = down || part != ".." && part != "." && part != ""
	}
	return false
}
