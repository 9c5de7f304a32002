package natsbus

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tutti-project/tutti"
)

const fuzzKey = tutti.NodeKey("UAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")

// FuzzWire checks what a node's headers, subject and chunks can cause. The server
// answers each message with a status. The server stores no more bytes than were
// announced and allowed. A handler gets content only if that content has the announced
// digest.
//
// Found: handled-by-another-digest, handled-by-another-digest-in-chunks. In both inputs, the
// node uploads a parcel with one digest, and then calls with a different digest. The handler
// wrongly got the content.
func FuzzWire(f *testing.F) {
	content := "hello"
	digest := string(tutti.DigestOf([]byte(content)))
	for _, s := range []string{
		"_put p1 DIGEST 5 0 hello\nhandle p1 DIGEST 5\n_get p1 DIGEST 5 0\n_done p1 DIGEST 5",
		"_put p1 DIGEST 5 0 he\n_put p1 DIGEST 5 2 llo\n_put p1 DIGEST 5 9 x\n_put p1 DIGEST 6 0 x\nhandle p1 DIGEST 5",
		"_get p1 DIGEST 5 -1\n_put p1 DIGEST 67108865 0 x\n_put p1 DIGEST 5 99999999999999999999 x\nhandle",
		"_put p1 DIGEST 5 0 helloworld\n_get p1 DIGEST 5 9223372036854775807\nhandle p1\n_done",
	} {
		f.Add([]byte(strings.ReplaceAll(s, "DIGEST", digest)), []byte("1000"))
	}
	f.Fuzz(func(t *testing.T, script, timeout []byte) {
		sp, err := newSpool(t.TempDir()+"/spool", time.Now)
		if err != nil {
			t.Fatal(err)
		}
		defer sp.close() //nolint:errcheck // its directory is the test's
		s := &server{spool: sp, ofNode: map[tutti.NodeKey]int{}}
		s.Logger = slog.New(slog.DiscardHandler)
		s.Handler = func(_ context.Context, _ tutti.NodeKey, op string, payload []byte) ([]byte, error) {
			if validateOp(op) != nil {
				t.Errorf("handled %q", op)
			}
			return payload, nil
		}
		for _, line := range bytes.SplitN(script, []byte("\n"), 30) {
			fields := append(bytes.SplitN(line, []byte(" "), 6), make([][]byte, 6)...)
			msg := nats.NewMsg("n.x.y")
			for i, name := range []string{headerParcel, headerDigest, headerSize, headerOffset} {
				if len(fields[i+1]) > 0 {
					msg.Header.Set(name, string(fields[i+1]))
				}
			}
			msg.Header.Set(headerTimeout, string(timeout))
			msg.Data = fields[5]
			if d := timeoutOf(msg.Header); d <= 0 || d > maxTimeout {
				t.Errorf("timeout %s of %q", d, timeout)
			}
			checkWireAnswer(t, string(fields[0]), msg, s.dispatch(t.Context(), fuzzKey, string(fields[0]), msg))
		}
		if sp.total < 0 || sp.total > maxSpoolPerNode || len(sp.entries[fuzzKey]) > maxParcelsPerNode {
			t.Errorf("%d bytes in %d parcels are kept", sp.total, len(sp.entries[fuzzKey]))
		}
	})
}

// checkWireAnswer checks one answer in the way in which the node reads it.
func checkWireAnswer(t *testing.T, op string, asked, answer *nats.Msg) {
	t.Helper()
	status := answer.Header.Get(headerStatus)
	if err := failureOf(op, answer); err != nil && status != statusMissing {
		if code := tutti.CodeOf(err); code != tutti.CodeInvalid && code != tutti.CodeUnavailable && code != tutti.CodeInternal || len(err.Error()) > chunkSize {
			t.Errorf("%s %v: %v", op, asked.Header, err)
		}
		return
	}
	if len(answer.Data) > chunkSize {
		t.Errorf("%s: an answer of %d bytes", op, len(answer.Data))
	}
	p, err := parcelOf(asked.Header)
	if err != nil {
		t.Errorf("%s %v was taken: %v", op, asked.Header, err)
	}
	if op == opPut && status == statusOK {
		if have, err := offsetOf(answer.Header); err != nil || have > p.size {
			t.Errorf("put: it has %d of %d bytes, %v", have, p.size, err)
		}
	}
	if op == "handle" && status == statusOK && p.id != "" && answer.Header.Get(headerParcel) == "" && tutti.DigestOf(answer.Data) != p.digest {
		t.Errorf("handled %q as content of digest %s", answer.Data, p.digest)
	}
}

// FuzzSubject checks that the server always treats the owner of the message's subject as the
// sender. The server answers a message only in the inbox of this node. The id of an event may
// contain any characters. In the event's subject, an id that is not a plain word is encoded.
func FuzzSubject(f *testing.F) {
	f.Add("n."+string(fuzzKey)+".claim", "i."+string(fuzzKey)+".x.1", "web.example.net")
	f.Add("n."+string(fuzzKey)+".a.b", "i."+string(fuzzKey)+".>", "log.>")
	f.Add("n..claim", "$JS.API.STREAM.DELETE.TUTTI_LOG", "=ab")
	f.Fuzz(func(t *testing.T, subject, reply, id string) {
		key, op, ok := senderOf(subject)
		if ok && subject != "n."+string(key)+"."+op || key != "" && !strings.HasPrefix(subject, "n."+string(key)+".") {
			t.Errorf("%q is %q of %q", subject, op, key)
		}
		if ownInbox(fuzzKey, reply) && (!strings.HasPrefix(reply, "i."+string(fuzzKey)+".") || strings.ContainsAny(reply, "*> \t\r\n") || strings.Contains(reply, "..") || strings.HasSuffix(reply, ".")) {
			t.Errorf("answered to %q", reply)
		}
		at := subjectOf(&tutti.ValueSet{Key: id})
		last, found := strings.CutPrefix(at, "log.value.set.")
		if !found || last == "" || len(at) > 200 || strings.ContainsAny(last, ".*> \t\r\n\x00") {
			t.Errorf("id %q is stored at %q", id, at)
		}
		if other := subjectOf(&tutti.ValueSet{Key: id + "x"}); other == at {
			t.Errorf("%q and %q are stored at %q", id, id+"x", at)
		}
	})
}

// FuzzStored checks that a stored message is either refused or is a valid message of
// the log.
//
// Found: tab-before-the-part (the code ignored a tab before the part of a batch).
func FuzzStored(f *testing.F) {
	f.Add("1/1", string(tutti.DigestOf(nil)), "", uint64(1))
	f.Add("2/3", "", "x", uint64(1))
	f.Add("3/2 ", "sha256:", "", uint64(9))
	f.Fuzz(func(t *testing.T, part, link, blob string, seq uint64) {
		header := nats.Header{}
		header.Set(headerPart, part)
		header.Set(headerLink, link)
		header.Set(headerBlob, blob)
		m, err := parse(seq, header, nil)
		if err != nil {
			if tutti.CodeOf(err) != tutti.CodeDamaged {
				t.Errorf("code %q of %v", tutti.CodeOf(err), err)
			}
			return
		}
		if m.part < 1 || m.part > m.parts || uint64(m.part) > seq || part != fmt.Sprintf("%d/%d", m.part, m.parts) {
			t.Errorf("%q of event %d is %d of %d", part, seq, m.part, m.parts)
		}
	})
}
