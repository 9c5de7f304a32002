package natsbus

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tutti-project/tutti"
)

func testSpool(t *testing.T) (*spool, *time.Time) {
	t.Helper()
	now := time.Unix(0, 0)
	s, err := newSpool(filepath.Join(t.TempDir(), "spool"), func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	return s, &now
}

func parcelFor(id string, content []byte) parcel {
	return parcel{id: id, digest: tutti.DigestOf(content), size: int64(len(content))}
}

func files(t *testing.T, s *spool) int {
	t.Helper()
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// TestWhoHasMostGivesRoom checks that nodes which announce large parcels and send nothing do not block
// other nodes. The node with the most bytes loses its least recently used parcel first. No node loses
// a parcel to a node that has the same number of bytes, or more.
func TestWhoHasMostGivesRoom(t *testing.T) {
	s, now := testSpool(t)
	large := parcel{digest: tutti.DigestOf(nil), size: MaxPayload}
	for i := range maxSpool / maxSpoolPerNode {
		for _, large.id = range []string{"one", "two"} {
			*now = now.Add(time.Second)
			if _, err := s.open(tutti.NodeKey(fmt.Sprint("N", i)), large); err != nil {
				t.Fatal(err)
			}
		}
	}
	honest := parcelFor("report", []byte("a report"))
	if _, err := s.open("honest", honest); err != nil {
		t.Errorf("a node that has nothing yet: %v", err)
	}
	gone := ""
	for i := range maxSpool / maxSpoolPerNode {
		for _, id := range []string{"one", "two"} {
			if s.find(tutti.NodeKey(fmt.Sprint("N", i)), id) == nil {
				gone += id
			}
		}
	}
	if gone != "one" || s.find("honest", "report") == nil {
		t.Errorf("%q gave room, want the one of a node that was not touched for longest", gone)
	}
	// No other node has more bytes than the node that needs room.
	if s.room(maxSpool, maxSpoolPerNode) {
		t.Error("nodes that have less give room")
	}
}

func TestSpoolIsBounded(t *testing.T) {
	s, now := testSpool(t)
	small, large := parcelFor("x", []byte("x")), parcel{digest: tutti.DigestOf(nil), size: MaxPayload}
	for i := range maxParcelsPerNode {
		small.id = fmt.Sprint("small", i)
		if _, err := s.open("A", small); err != nil {
			t.Fatal(err)
		}
	}
	small.id = "more"
	if _, err := s.open("A", small); tutti.CodeOf(err) != tutti.CodeUnavailable {
		t.Errorf("one parcel too many for a node: %v", err)
	}
	if _, err := s.open("B", small); err != nil {
		t.Errorf("another node: %v", err)
	}
	for i := range 100 {
		for _, large.id = range []string{"one", "two", "three"} {
			_, err := s.open(tutti.NodeKey(fmt.Sprint("N", i)), large)
			if err != nil && tutti.CodeOf(err) != tutti.CodeUnavailable {
				t.Fatal(err)
			}
			if large.id == "three" && err == nil {
				t.Errorf("node %d has more bytes than a node may", i)
			}
			if s.total > maxSpool {
				t.Fatalf("%d bytes are in a spool for %d", s.total, maxSpool)
			}
		}
	}
	if s.total < maxSpool/2 {
		t.Errorf("%d bytes are in a spool for %d", s.total, maxSpool)
	}
	*now = now.Add(parcelLife + time.Second)
	if _, err := s.open("A", small); err != nil {
		t.Errorf("after all have expired: %v", err)
	}
	if n := files(t, s); n != 1 || s.total != 1 {
		t.Errorf("%d files with %d bytes are left, want 1 with 1", n, s.total)
	}
}

func TestSpoolEntry(t *testing.T) {
	s, _ := testSpool(t)
	content := []byte("0123456789")
	e, err := s.open("A", parcelFor("x", content))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		reason string
		offset int64
		chunk  string
		have   int64
	}{
		{"the question how much is there", 0, "", 0},
		{"the first chunk", 0, "0123", 4},
		{"the same again", 0, "0123", 4},
		{"one too early", 6, "6789", 4},
		{"the next", 4, "456789", 10},
		{"the last again", 4, "456789", 10},
	} {
		if have, err := e.write(c.offset, []byte(c.chunk)); err != nil || have != c.have {
			t.Errorf("%s: have %d, %v; want %d", c.reason, have, err, c.have)
		}
	}
	if got, err := e.content(); err != nil || string(got) != string(content) {
		t.Errorf("content %q, %v", got, err)
	}
	if _, err := e.write(10, []byte("x")); tutti.CodeOf(err) != tutti.CodeInvalid {
		t.Errorf("more than announced: %v", err)
	}
	if s.find("B", "x") != nil {
		t.Error("another node finds the parcel")
	}
	if _, err := s.open("A", parcelFor("x", []byte("other"))); tutti.CodeOf(err) != tutti.CodeInvalid {
		t.Errorf("announced as something else: %v", err)
	}
	wrong, err := s.open("A", parcel{id: "y", digest: tutti.DigestOf([]byte("right")), size: 5})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := wrong.content(); tutti.CodeOf(err) != tutti.CodeInvalid {
		t.Errorf("incomplete content: %v", err)
	}
	if err := wrong.fill([]byte("wrong")); err != nil {
		t.Fatal(err)
	}
	if _, err := wrong.content(); tutti.CodeOf(err) != tutti.CodeInvalid {
		t.Errorf("content with another digest: %v", err)
	}
	s.drop("A", "x")
	s.drop("A", "y")
	s.drop("A", "never there")
	if n := files(t, s); n != 0 || s.total != 0 {
		t.Errorf("%d files with %d bytes are left, want none", n, s.total)
	}
}

// TestAnAnswerIsFetchedAFewTimes checks that a node can fetch the chunks of an answer only a few times.
// A node cannot fetch the content that it has sent itself.
func TestAnAnswerIsFetchedAFewTimes(t *testing.T) {
	s, _ := testSpool(t)
	content := make([]byte, 2*chunkSize+1)
	answer, err := s.open("A", parcelFor("answer", content))
	if err != nil {
		t.Fatal(err)
	}
	if err := answer.fill(content); err != nil {
		t.Fatal(err)
	}
	for i := range 4 { // connections may break
		for offset := int64(0); offset < int64(len(content)); offset += chunkSize {
			if _, err := answer.chunk(offset); err != nil {
				t.Fatalf("time %d: %v", i+1, err)
			}
		}
	}
	fetched := 0
	for ; err == nil && fetched < 1000; fetched++ {
		_, err = answer.chunk(0)
	}
	if tutti.CodeOf(err) != tutti.CodeUnavailable || fetched > 20 {
		t.Errorf("after %d more chunks: %v", fetched, err)
	}
	sent, err := s.open("A", parcelFor("sent", content))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sent.write(0, content); err != nil {
		t.Fatal(err)
	}
	if _, err := sent.chunk(0); tutti.CodeOf(err) != tutti.CodeInvalid {
		t.Errorf("what the node has sent: %v", err)
	}
}

// TestAChunkThatIsOfNoUseIsTooMuch checks which chunks count against the limit of the node. A chunk
// counts if the server already has it or cannot use it. A chunk that the server stores does not count.
func TestAChunkThatIsOfNoUseIsTooMuch(t *testing.T) {
	sp, _ := testSpool(t)
	s := &server{spool: sp}
	counted := 0
	s.Excess = func(_ tutti.NodeKey, bytes int) bool { counted += bytes; return false }
	p := parcelFor("x", make([]byte, 10))
	for _, c := range []struct {
		reason  string
		offset  int64
		chunk   int
		counted int
	}{
		{"the question how much is there", 0, 0, 0},
		{"the first chunk", 0, 4, 0},
		{"the same again", 0, 4, 4},
		{"one too early", 6, 4, 4},
		{"the next", 4, 6, 0},
		{"more than announced", 10, 5, 5},
	} {
		counted = 0
		msg := nats.NewMsg("n.A._put")
		p.mark(msg.Header)
		setOffset(msg.Header, c.offset)
		msg.Data = make([]byte, c.chunk)
		s.put("A", p, msg)
		if counted != c.counted {
			t.Errorf("%s: %d bytes were counted, want %d", c.reason, counted, c.counted)
		}
	}
}
