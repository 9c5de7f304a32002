package nodes

import (
	"bytes"
	"encoding/json"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/data"
	"github.com/tutti-project/tutti/internal/server/core"
	"github.com/tutti-project/tutti/wire"
)

// A few bytes of JSON can need much memory (`{}` is an export of 130 bytes), and a short question can
// cause much work. So the server limits the cost of a message before it does the work. The server
// limits the size of a message, counts the elements while it decodes them, and computes the cost of
// the answer.
const (
	maxSmall   = 64 << 10 // bytes of a message with a few fields
	maxLight   = 100      // the largest number of exports and keys of a run that the writer checks itself
	maxHead    = 1 << 20  // bytes of a message, without the content that follows
	maxFilters = 1 << 20  // bytes of all filters in the reads of one gate
	// maxGateCost is the largest number of comparisons (see data.State.Cost) that the writer makes for all reads
	// of one run. A comparison takes up to 25 ns. The writer makes the comparisons of a run twice: once to
	// compare the answers, and once to remember the reads.
	maxGateCost = 10_000_000
	// maxAnswered is the largest answer that the bus accepts.
	maxAnswered = 64 << 20
)

// The following constants are the limits for one message of a node. A node may lie in every
// field. The messages of a node must not fill the log, and must not keep the writer busy.
const (
	maxReads  = 20_000
	maxKeys   = 100_000
	maxValues = 5_000
	maxWaits  = 1_000
	maxLive   = 1_000 // an agent sends 200 at most
	// MaxStored is how many bytes of new content a node may send for one run. MaxEnded also includes the content
	// that comes with the result of the run. So a node that has used up MaxStored can still report how the run
	// ended.
	MaxStored = 4 * core.MaxBlob
	MaxEnded  = MaxStored + 2*core.MaxBlob
	// The server reads a large gate before it refuses the gate. MaxTried limits the bytes of the refused large
	// gates of one run.
	MaxTried = 2 * core.MaxBlob
	// maxChanges and maxWritten limit the values that one run sets and removes.
	maxChanges = 2 * maxValues
	maxWritten = 8 << 20
)

// mostBytes returns the largest size of a message with this operation.
func mostBytes(op string) int {
	switch op {
	case wire.OpGate, wire.OpCompiled, wire.OpBlobPut:
		return core.MaxBlob
	case wire.OpResult, wire.OpBox:
		return 1 << 20
	case wire.OpForeign:
		return maxForeign
	case wire.OpInventory:
		return tutti.MaxCatalogBlob + maxSmall
	case wire.OpAsk:
		return data.MaxFilter + maxSmall
	case wire.OpPublish:
		return data.MaxValue + maxSmall
	case wire.OpLive:
		return 256 << 10
	case wire.OpAnswer:
		return tutti.MaxRemoteReply
	}
	return maxSmall
}

// The method `decodeGate` reads what a run hands over after its compile. The method refuses content that the
// catalog of an honest node never contains.
func (s *base) decodeGate(op string, payload []byte) (wire.Gate, error) {
	type fields wire.Gate
	raw, err := core.Decode[struct {
		fields
		Reads   json.RawMessage `json:"reads"`
		Keys    json.RawMessage `json:"keys"`
		Exports json.RawMessage `json:"exports"`
		Values  json.RawMessage `json:"values"`
	}](op, payload)
	if err != nil {
		return wire.Gate{}, err
	}
	in := wire.Gate(raw.fields)
	if in.Reads, err = elements[tutti.Read]("gate: reads", raw.Reads, maxReads); err != nil {
		return in, err
	}
	if in.Keys, err = s.keys.decode("gate: hiera keys", raw.Keys); err != nil {
		return in, err
	}
	if in.Exports, err = elements[tutti.Export]("gate: exports", raw.Exports, data.MaxExports); err != nil {
		return in, err
	}
	if in.Values, err = elements[string]("gate: values", raw.Values, maxValues); err != nil {
		return in, err
	}
	filters := 0
	for _, r := range in.Reads {
		filters += len(r.Query.Filter)
	}
	if filters > maxFilters {
		return in, tutti.Errorf(tutti.CodeInvalid, "gate: %d bytes of filters, at most %d", filters, maxFilters)
	}
	return in, checkCompiled(in.CatalogReport)
}

// maxVersion is the largest length, in bytes, of the Puppet version that a node reports.
const maxVersion = 100

// checkCompiled refuses invalid digests. An empty digest is valid: it means that the node
// could not compute the digest.
func checkCompiled(c tutti.CatalogReport) error {
	for name, digest := range map[string]tutti.Digest{"catalog": c.Catalog, "sources": c.Sources, "lib": c.Lib, "facts": c.Facts} {
		if digest == "" {
			continue
		}
		if err := digest.Validate(); err != nil {
			return tutti.Wrap(tutti.CodeInvalid, err, "gate: %s", name)
		}
	}
	if len(c.Puppet) > maxVersion || len(c.Module) > maxVersion {
		return tutti.Errorf(tutti.CodeInvalid, "gate: a version of %d bytes, at most %d", max(len(c.Puppet), len(c.Module)), maxVersion)
	}
	return nil
}

// The method `decodeRecord` reads the questions of a run from its record. The limits are the same as for
// a gate.
func (s *base) decodeRecord(raw []byte) (tutti.Record, error) {
	in, err := core.Decode[struct {
		Reads json.RawMessage `json:"reads"`
		Keys  json.RawMessage `json:"keys"`
	}]("record", raw)
	var out tutti.Record
	if err != nil {
		return out, err
	}
	if out.Reads, err = elements[tutti.Read]("record: reads", in.Reads, maxReads); err != nil {
		return out, err
	}
	out.Keys, err = s.keys.decode("record: hiera keys", in.Keys)
	return out, err
}

// The function `elements` decodes the elements of a list one after the other, and stops as soon as there are
// too many. For null and for an empty input, the function returns an empty list.
func elements[T any](what string, raw json.RawMessage, most int) ([]T, error) {
	out, more, err := data.FirstOf[T](what, raw, most)
	if more {
		return nil, tutti.Errorf(tutti.CodeInvalid, "%s: more than %d", what, most)
	}
	return out, err
}

// maxParts is the largest number of elements of lists and members of objects (parts) in a message,
// if the operation has no fixed number of parts. The result of an honest node has a few hundred
// parts.
const maxParts = 20_000

// checkParts refuses a message that has more parts than an honest node sends. The check comes before the
// message is decoded, because a list of empty objects has thousands of parts in a few kilobytes. In the
// messages of some operations only the first line is JSON, and other content follows.
func checkParts(op string, payload []byte) error {
	switch op {
	case wire.OpForeign, wire.OpResult, wire.OpInventory:
		payload, _, _ = bytes.Cut(payload, []byte("\n"))
	case wire.OpBox:
	default:
		return nil // the message is small, or the decoder counts its parts
	}
	if len(payload) > maxHead {
		return tutti.Errorf(tutti.CodeInvalid, "operation %q with %d bytes in its first line, at most %d", op, len(payload), maxHead)
	}
	parts, quoted := 0, false
	for i := 0; i < len(payload); i++ {
		switch c := payload[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case c == ',' && !quoted:
			parts++
		}
	}
	if parts > maxParts {
		return tutti.Errorf(tutti.CodeInvalid, "operation %q has more than %d parts", op, maxParts)
	}
	return nil
}
