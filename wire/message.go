package wire

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/tutti-project/tutti"
)

// These are the operations with which a node calls the server over the bus, and their messages. The key of the sender
// shows which node sends, so no message contains the node's name. In messages of a compile host, the field For names
// the node for which the host's Puppet Server compiles.
const (
	OpHello      = "hello"      // Hello → nothing
	OpClaim      = "claim"      // Claim → Claimed
	OpGate       = "gate"       // Gate → Gated
	OpAsk        = "ask"        // Question → Answer
	OpHiera      = "hiera"      // HieraQuestion → HieraData
	OpPublish    = "publish"    // Publish → nothing
	OpCompile    = "compile"    // BeginServed → ServedBegun
	OpCompiled   = "compiled"   // ServedCatalog → nothing
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
	OpInventory  = "inventory"  // EncodeInventory → nothing
	OpRecipients = "recipients" // RecipientsQuestion → NodeRecipients
	OpPieces     = "pieces"     // nothing → OwnPieces
	OpBox        = "box"        // NewBox → nothing
	OpTrust      = "trust"      // Pinned → ToPin

	RingHello  = "hello"  // server → node: send a hello, because your ticket does not match
	RingBeat   = "beat"   // server → node: Beat at once
	RingClaim  = "claim"  // server → node: an order may be ready to claim
	RingCancel = "cancel" // server → node: CancelRun
	RingGate   = "gate"   // server → node: the gate of your run may have decided
	RingRemote = "remote" // server → node: RemoteRequest
	RingLease  = "lease"  // server → node: report the state of your lease
	RingTrust  = "trust"  // server → node: report your CAs and issuer
)

// Gate contains the data that a compiled run reports before it applies anything. If the answer is
// hold, the agent sends the same Gate again later.
type Gate struct {
	Run tutti.RunID `json:"run"`
	tutti.CatalogReport
	Reads   []tutti.Read    `json:"reads"`
	Keys    []tutti.KeyRead `json:"keys"`
	Exports []tutti.Export  `json:"exports"`
}

// Gated is the gate's answer.
type Gated struct {
	Verdict tutti.GateVerdict `json:"verdict"`
	Reason  string            `json:"reason,omitempty"`
}

// Validate refuses an answer that is not go, stop or hold.
func (g Gated) Validate() error {
	switch g.Verdict {
	case tutti.GateGo, tutti.GateStop, tutti.GateHold:
		return nil
	}
	return tutti.Errorf(tutti.CodeInternal, "the server's answer at the gate is %q, but it must be go, stop or hold", string(g.Verdict))
}

// Question is one question of a run. If For is set, the question belongs to a compile for that node.
type Question struct {
	Run   tutti.RunID    `json:"run"`
	For   tutti.NodeName `json:"for,omitempty"`
	Query tutti.Query    `json:"query"`
	// Stored is set for a collector that PuppetDB has answered. Stored contains the catalogs that
	// PuppetDB had before its answer, of all nodes that export resources of the type. If the answer
	// contains a node without such a catalog, Stored has an empty catalog for the node.
	Stored map[tutti.NodeName]Stored `json:"stored,omitzero"`
	// The field Opens is true if the asking module can open secrets.
	Opens bool `json:"opens,omitempty"`
}

// Answer is the answer to a Question, with the sequence of the log at which the answer was correct.
type Answer struct {
	Found   bool            `json:"found"`
	Value   json.RawMessage `json:"value,omitempty"`
	Exports []tutti.Export  `json:"exports,omitempty"`
	Digest  tutti.Digest    `json:"digest,omitempty"`
	Seq     uint64          `json:"seq"`
	// Lags lists the nodes that make PuppetDB's answer differ from this answer. Lags can be set only
	// if Stored was sent. If Lags is set, Exports is empty.
	Lags []tutti.Lag `json:"lags,omitzero"`
	// Awaits is the key of a secret that is for the node but is not yet sealed to the node. If Awaits is set, no
	// value is found.
	Awaits string `json:"awaits,omitempty"`
}

// Validate refuses a message that cannot be an answer to the question. A missing answer differs
// from an empty answer.
func (a Answer) Validate(q tutti.Query) error {
	var good bool
	switch q.Kind {
	case tutti.QueryCollect:
		good = a.Found && len(a.Value) == 0 && a.Digest.Validate() == nil
	case tutti.QueryPublished: // an answer of this kind is not a read and has no digest
		good = a.Found == (len(a.Value) > 0)
	default:
		good = a.Found == (len(a.Value) > 0) && a.Found == (a.Digest.Validate() == nil)
	}
	if !good || a.Seq == 0 {
		return tutti.Errorf(tutti.CodeInternal, "the server's answer to a %s question is invalid: found %t, %d bytes, digest %q, as of %d", q.Kind, a.Found, len(a.Value), string(a.Digest), a.Seq)
	}
	return nil
}

// UnmarshalJSON refuses an answer without the field `found`.
func (a *Answer) UnmarshalJSON(raw []byte) error {
	type fields Answer
	var in fields
	said := struct {
		*fields
		Found *bool `json:"found"`
	}{fields: &in}
	if err := json.Unmarshal(raw, &said); err != nil {
		return err
	}
	if said.Found == nil {
		return tutti.Errorf(tutti.CodeInternal, "an answer must say whether a value was found")
	}
	in.Found = *said.Found
	*a = Answer(in)
	return nil
}

// HieraQuestion asks for all values in the hiera level of the node, or of the node in For.
type HieraQuestion struct {
	Run   tutti.RunID    `json:"run"`
	For   tutti.NodeName `json:"for,omitempty"`
	Opens bool           `json:"opens,omitempty"` // see Question.Opens
}

// HieraData is the whole hiera level of one node, with a digest for each key.
type HieraData struct {
	Data    map[string]json.RawMessage `json:"data"`
	Digests map[string]tutti.Digest    `json:"digests"`
	Seq     uint64                     `json:"seq"`
	// Awaits maps hiera keys to keys of secrets. The node lacks these hiera keys because the secrets are not yet sealed
	// to the node.
	Awaits map[string]string `json:"awaits,omitempty"`
}

// Validate refuses data that cannot be a node's hiera level. A missing answer differs from an empty
// answer.
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

// Publish sets a value for a run. If Withdraw is true, the message withdraws the value.
type Publish struct {
	Run      tutti.RunID     `json:"run"`
	Key      string          `json:"key"`
	Value    json.RawMessage `json:"value,omitempty"`
	Withdraw bool            `json:"withdraw,omitempty"`
	// Secret replaces Value if the value is a secret. The secret's key is the same as Key.
	Secret *tutti.SealSecret `json:"secret,omitempty"`
}

// Size returns the number of published bytes.
func (p Publish) Size() int {
	if p.Secret != nil {
		return p.Secret.Size()
	}
	return len(p.Value)
}

// RecipientsQuestion asks for the keys to which a run must seal a secret before it publishes the secret.
type RecipientsQuestion struct {
	Run tutti.RunID `json:"run"`
	Key string      `json:"key"`
	For []string    `json:"for"`
}

// NodeRecipients answers RecipientsQuestion. Current is the present secret of the same node. Current is nil if there
// is no secret.
type NodeRecipients struct {
	tutti.Recipients
	Current *SealedTo `json:"current,omitempty"`
}

// OwnPieces contains all pieces that are sealed to a node.
type OwnPieces struct {
	Pieces []OwnPiece `json:"pieces"`
}

// OwnPiece is a piece that is sealed to the sending or receiving node.
type OwnPiece struct {
	Key    string `json:"key"`
	ID     string `json:"id"`
	Sealed []byte `json:"sealed"`
}

// MaxOwnPieces bounds the total size of a node's pieces in bytes. The node must be able to seal all pieces to a new
// key in one message.
const MaxOwnPieces = 512 << 10

// NewBox replaces a node's key for secrets. NewBox contains all of the node's pieces, sealed to the new
// key. The error is CodeConflict if a secret came or changed in the meantime.
type NewBox struct {
	BoxKey string     `json:"box_key"`
	Pieces []OwnPiece `json:"pieces"`
}

// SealedTo says which nodes can open a secret. Boxes has the digests of these nodes' keys.
type SealedTo struct {
	ID    string                          `json:"id"`
	For   []string                        `json:"for"`
	Boxes map[tutti.NodeName]tutti.Digest `json:"boxes"`
}

// Ended is a result in the form that the node sends. Ended encloses report, log and record if they
// are small. The agent sends larger parts before the result.
type Ended struct {
	tutti.Result
	Enclosed [][]byte
}

// MaxEnclosed bounds the total size of the enclosed parts in bytes, so that the whole result fits
// in one message of the bus.
const MaxEnclosed = 120 << 10

// endedHead is the first line of an encoded Ended. The enclosed parts follow the first line.
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

// DecodeEnded decodes a message of Encode. A plain Result has no enclosed parts. The enclosed parts
// share memory with the message. The error is CodeInvalid if the message has another form. The
// error is CodeConflict if the message is cut off. The node must then send the message again.
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
			return Ended{}, tutti.Errorf(tutti.CodeConflict, "result of run %s: the enclosed content is cut off; send it again", out.Run)
		}
		out.Enclosed = append(out.Enclosed, rest[:size:size])
		rest = rest[size:]
	}
	return out, nil
}

// Leave asks the server to remove the sending node from the fleet. The server withdraws the node's
// publications. The node's key becomes invalid within seconds. The error is CodeConflict while the
// node has an active run.
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

// Beat says that the node's agent is connected.
type Beat struct {
	Version string      `json:"version"`
	Puppet  string      `json:"puppet,omitempty"`
	Run     tutti.RunID `json:"run,omitempty"`     // what runs now
	Trouble string      `json:"trouble,omitempty"` // Trouble is work that the agent cannot do before a person helps.
	Warm    int64       `json:"warm,omitempty"`    // memory, in bytes, of the process that has Puppet loaded
	At      time.Time   `json:"at"`
	// Stopping is true only in the last beat of an agent that stops. The server only shows Stopping
	// to people. The server treats a stopping node like a node that becomes silent.
	Stopping bool `json:"stopping,omitempty"`
	// Unnoted is the reason why the agent could not note runs that Tutti did not start. These runs may have changed the
	// node, and the server does not know of them. Agents of earlier releases never set Unnoted, and servers of earlier
	// releases ignore it.
	Unnoted string `json:"unnoted,omitempty"`
	// Files is what Puppet's own files say. Files is nil if Puppet is not installed, if its files cannot be read, or if
	// the agent is of an earlier release.
	Files *tutti.PuppetFiles `json:"files,omitempty"`
}

// Renew asks for a new JWT for the node's key, because the present JWT expires soon.
type Renew struct{}

// Renewed contains the new JWT.
type Renewed struct {
	JWT string `json:"jwt"`
}

// ToPin contains the CAs (PEM) that a node should trust, and a JWT if the node should use a new one. After the node
// has stored the CAs and the JWT, the node confirms this by sending OpTrust again.
type ToPin struct {
	CA  string `json:"ca"`
	JWT string `json:"jwt,omitempty"`
}

// CancelRun asks the node to end a run. The run's outcome is then interrupted.
type CancelRun struct {
	Run tutti.RunID `json:"run"`
}
