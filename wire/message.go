package wire

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/tutti-project/tutti"
)

// The operations that a node asks of the server over the bus, and their
// messages. The key shows which node sends; no message names its node. What a compile
// host sends names the node For which its Puppet Server compiles.
const (
	OpHello      = "hello"      // Hello → nothing
	OpClaim      = "claim"      // Claim → Claimed
	OpGate       = "gate"       // Gate → Gated
	OpAsk        = "ask"        // Ask → Answered
	OpHiera      = "hiera"      // HieraAsk → HieraData
	OpPublish    = "publish"    // Publish → nothing
	OpCompile    = "compile"    // Compile → Compiling
	OpCompiled   = "compiled"   // CompiledFor → nothing
	OpResult     = "result"     // Ended → nothing
	OpBlobPut    = "blobput"    // content → BlobStored
	OpBlobGet    = "blobget"    // BlobGet → content
	OpCode       = "code"       // CodeGet → SignedCode
	OpBeat       = "beat"       // Beat, no reply
	OpLive       = "live"       // []Live, no reply
	OpLeave      = "leave"      // Leave → nothing
	OpRenew      = "renew"      // Renew → Renewed
	OpAct        = "act"        // RemoteAct → nothing
	OpAnswer     = "answer"     // RemoteReply, no reply
	OpForeign    = "foreign"    // EncodeForeign → nothing
	OpLease      = "lease"      // LeaseReport → LeaseOrder
	OpFacts      = "facts"      // FactsSeen → nothing
	OpRecipients = "recipients" // AskRecipients → NodeRecipients
	OpPieces     = "pieces"     // nothing → OwnPieces
	OpBox        = "box"        // NewBox → nothing
	OpTrust      = "trust"      // Pinned → ToPin

	RingHello  = "hello"  // server → node: say hello, your ticket does not fit
	RingBeat   = "beat"   // server → node: Beat at once
	RingClaim  = "claim"  // server → node: something may be there to claim
	RingCancel = "cancel" // server → node: CancelRun
	RingGate   = "gate"   // server → node: the gate of its run may have decided
	RingRemote = "remote" // server → node: RemoteRequest
	RingLease  = "lease"  // server → node: report how you stand
	RingTrust  = "trust"  // server → node: say what you stand on
)

// Gate is what a compiled run hands over before it applies anything. An agent
// that was told to hold sends it again.
type Gate struct {
	Run tutti.RunID `json:"run"`
	tutti.Compiled
	Reads   []tutti.Read    `json:"reads"`
	Keys    []tutti.KeyRead `json:"keys"`
	Exports []tutti.Export  `json:"exports"`
}

// Gated is the gate's answer.
type Gated struct {
	Verdict tutti.GateVerdict `json:"verdict"`
	Reason  string            `json:"reason,omitempty"`
}

// Validate refuses an answer that is neither go nor stop nor hold.
func (g Gated) Validate() error {
	switch g.Verdict {
	case tutti.GateGo, tutti.GateStop, tutti.GateHold:
		return nil
	}
	return tutti.Errorf(tutti.CodeInternal, "the server's answer at the gate is %q, neither go nor stop nor hold", string(g.Verdict))
}

// Ask is one question on behalf of a run; with For, of a compile for that node.
type Ask struct {
	Run   tutti.RunID    `json:"run"`
	For   tutti.NodeName `json:"for,omitempty"`
	Query tutti.Query    `json:"query"`
	// Stored belongs to a collector that PuppetDB has answered. It has the catalogs, from
	// before the answer, of the nodes that export resources of the type, and an empty
	// catalog for each node that is in the answer and was not among them.
	Stored map[tutti.NodeName]Stored `json:"stored,omitzero"`
	// Opens: the module that asks can open secrets.
	Opens bool `json:"opens,omitempty"`
}

// Answered is the answer, and the sequence of the log at which it was true.
type Answered struct {
	Found   bool            `json:"found"`
	Value   json.RawMessage `json:"value,omitempty"`
	Exports []tutti.Export  `json:"exports,omitempty"`
	Digest  tutti.Digest    `json:"digest,omitempty"`
	Seq     uint64          `json:"seq"`
	// Lags, if Stored was given, are the nodes because of which PuppetDB's answer differs from
	// this one. The exports are then left out.
	Lags []tutti.Lag `json:"lags,omitzero"`
	// Awaits is the key of a secret that is for the node and not sealed to it yet: nothing is found for it.
	Awaits string `json:"awaits,omitempty"`
}

// Validate refuses what cannot be an answer to the question. A missing answer is not
// an empty answer.
func (a Answered) Validate(q tutti.Query) error {
	var good bool
	switch q.Kind {
	case tutti.QueryCollect:
		good = a.Found && len(a.Value) == 0 && a.Digest.Validate() == nil
	case tutti.QueryPublished: // it is no read and has no digest
		good = a.Found == (len(a.Value) > 0)
	default:
		good = a.Found == (len(a.Value) > 0) && a.Found == (a.Digest.Validate() == nil)
	}
	if !good || a.Seq == 0 {
		return tutti.Errorf(tutti.CodeInternal, "the server's answer to a %s question is invalid: found %t, %d bytes, digest %q, as of %d", q.Kind, a.Found, len(a.Value), string(a.Digest), a.Seq)
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
		return tutti.Errorf(tutti.CodeInternal, "an answer that does not say whether it was found")
	}
	in.Found = *said.Found
	*a = Answered(in)
	return nil
}

// HieraAsk asks for everything that the hiera level has for the node, or for For.
type HieraAsk struct {
	Run   tutti.RunID    `json:"run"`
	For   tutti.NodeName `json:"for,omitempty"`
	Opens bool           `json:"opens,omitempty"` // as in Ask
}

// HieraData is the whole hiera level of one node, with a digest per key.
type HieraData struct {
	Data    map[string]json.RawMessage `json:"data"`
	Digests map[string]tutti.Digest    `json:"digests"`
	Seq     uint64                     `json:"seq"`
	// Awaits are the hiera keys that the node lacks because a secret is not sealed to it yet, with the secret's key.
	Awaits map[string]string `json:"awaits,omitempty"`
}

// Validate refuses what cannot be the level of a node. A missing answer is not an
// empty answer.
func (h HieraData) Validate() error {
	good := h.Seq > 0 && h.Data != nil && len(h.Data) == len(h.Digests)
	for key := range h.Data {
		good = good && h.Digests[key].Validate() == nil
	}
	if !good {
		return tutti.Errorf(tutti.CodeInternal, "the server's hiera data is invalid: %d keys, %d digests, as of %d", len(h.Data), len(h.Digests), h.Seq)
	}
	return nil
}

// Publish sets (or, with Withdraw, unsets) a value on behalf of a run.
type Publish struct {
	Run      tutti.RunID     `json:"run"`
	Key      string          `json:"key"`
	Value    json.RawMessage `json:"value,omitempty"`
	Withdraw bool            `json:"withdraw,omitempty"`
	// Secret is in place of Value. Its key is Key.
	Secret *tutti.SealSecret `json:"secret,omitempty"`
}

// Size is how many bytes are published.
func (p Publish) Size() int {
	if p.Secret != nil {
		return p.Secret.Size()
	}
	return len(p.Value)
}

// AskRecipients asks to which keys a run has to seal a secret that it publishes.
type AskRecipients struct {
	Run tutti.RunID `json:"run"`
	Key string      `json:"key"`
	For []string    `json:"for"`
}

// NodeRecipients answers AskRecipients. Current is the present secret of the same node; nil: there is none.
type NodeRecipients struct {
	tutti.Recipients
	Current *SealedTo `json:"current,omitempty"`
}

// OwnPieces are all that is sealed to a node.
type OwnPieces struct {
	Pieces []OwnPiece `json:"pieces"`
}

// OwnPiece is a secret as it is sealed to the node that sends or gets it.
type OwnPiece struct {
	Key    string `json:"key"`
	ID     string `json:"id"`
	Sealed []byte `json:"sealed"`
}

// MaxOwnPieces bounds the bytes of all that is sealed to a node, so that it can seal all of it to another key at once.
const MaxOwnPieces = 512 << 10

// NewBox gives a node another key for its secrets, with all of them sealed to it. CodeConflict: one came or changed
// meanwhile.
type NewBox struct {
	BoxKey string     `json:"box_key"`
	Pieces []OwnPiece `json:"pieces"`
}

// SealedTo is who can open a secret: the digests of their keys.
type SealedTo struct {
	ID    string                          `json:"id"`
	For   []string                        `json:"for"`
	Boxes map[tutti.NodeName]tutti.Digest `json:"boxes"`
}

// Ended is a result as it goes to the server: with those of its report, log and
// record that are small, in one message; the others were sent before.
type Ended struct {
	tutti.Result
	Enclosed [][]byte
}

// MaxEnclosed bounds the bytes of all that a result encloses, so that with it the
// result is one message of the bus.
const MaxEnclosed = 120 << 10

// endedHead is the first line of an encoded Ended; what is enclosed follows.
type endedHead struct {
	tutti.Result
	Enclosed []int `json:"enclosed,omitempty"` // their sizes
}

// Encode returns the message.
func (e Ended) Encode() ([]byte, error) {
	head := endedHead{Result: e.Result}
	for _, part := range e.Enclosed {
		head.Enclosed = append(head.Enclosed, len(part))
	}
	out, err := json.Marshal(head)
	if err != nil || len(e.Enclosed) == 0 {
		return out, err
	}
	out = append(out, '\n')
	for _, part := range e.Enclosed {
		out = append(out, part...)
	}
	return out, nil
}

// DecodeEnded reads what Encode wrote; a plain Result encloses nothing. What is
// enclosed shares memory with the message. CodeInvalid: it is not such a message.
// CodeConflict: it is cut off; send it again.
func DecodeEnded(message []byte) (Ended, error) {
	line, rest, _ := bytes.Cut(message, []byte("\n"))
	var head endedHead
	if err := json.Unmarshal(line, &head); err != nil {
		return Ended{}, tutti.Wrap(tutti.CodeInvalid, err, "message %q", OpResult)
	}
	out, room := Ended{Result: head.Result}, MaxEnclosed
	for _, size := range head.Enclosed {
		if size < 0 || size > room {
			return Ended{}, tutti.Errorf(tutti.CodeInvalid, "result of run %s: encloses %v bytes, at most %d in all", out.Run, head.Enclosed, MaxEnclosed)
		}
		room -= size
		if size > len(rest) {
			return Ended{}, tutti.Errorf(tutti.CodeConflict, "result of run %s: what it encloses is cut off; send it again", out.Run)
		}
		out.Enclosed = append(out.Enclosed, rest[:size:size])
		rest = rest[size:]
	}
	return out, nil
}

// Leave asks to remove the sending node from the fleet: its publications are withdrawn,
// and its key ends within seconds. CodeConflict while a run of the node goes on.
type Leave struct{}

// BlobStored answers OpBlobPut.
type BlobStored struct {
	Digest tutti.Digest `json:"digest"`
}

// BlobGet asks for a file of the code that a run of this node needs.
type BlobGet struct {
	Run    tutti.RunID  `json:"run"`
	Digest tutti.Digest `json:"digest"`
}

// CodeGet asks for the signed manifest of the code that a run needs.
type CodeGet struct {
	Run  tutti.RunID  `json:"run"`
	Code tutti.Digest `json:"code"`
}

// Beat says that the agent of a node is connected.
type Beat struct {
	Version string      `json:"version"`
	Puppet  string      `json:"puppet,omitempty"`
	Run     tutti.RunID `json:"run,omitempty"`     // what runs now
	Trouble string      `json:"trouble,omitempty"` // what the agent cannot do until somebody helps
	Warm    int64       `json:"warm,omitempty"`    // bytes of memory of the process that has Puppet loaded
	At      time.Time   `json:"at"`
	// Stopping is said once, by the last beat of an agent that was told to end. It is for
	// people: the server treats such a node like one that falls silent.
	Stopping bool `json:"stopping,omitempty"`
	// Unnoted says why the agent could not note runs that Tutti did not start. Such a run may have changed the node and
	// nobody was told. An earlier agent never says it, and an earlier server does not read it.
	Unnoted string `json:"unnoted,omitempty"`
}

// Renew asks for a new JWT for the node's key, because the present one ends.
type Renew struct{}

// Renewed carries it.
type Renewed struct {
	JWT string `json:"jwt"`
}

// ToPin is what a node should pin and use: the CAs (PEM), and a JWT if it should have another one than it has. A node
// that has taken it confirms that by the same question.
type ToPin struct {
	CA  string `json:"ca"`
	JWT string `json:"jwt,omitempty"`
}

// CancelRun asks the node to end a run; the run ends interrupted.
type CancelRun struct {
	Run tutti.RunID `json:"run"`
}
