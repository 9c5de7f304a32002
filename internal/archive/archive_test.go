package archive_test

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/archive"
)

// The function `content` returns a small archive. The archive has two files, three events
// after event seven with one gap between them, and one blob.
func content(t *testing.T) []byte {
	t.Helper()
	var out bytes.Buffer
	head := archive.Head{Release: "test", MadeAt: time.Unix(1e9, 0).UTC(), After: 7, Link: tutti.DigestOf([]byte("seven"))}
	w, err := archive.NewWriter(&out, head)
	if err != nil {
		t.Fatal(err)
	}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(w.File("server.json", []byte("{}")))
	check(w.File("identity/ca.key", []byte("secret")))
	link := head.Link
	for _, seq := range []uint64{8, 9, 12} {
		raw := []byte(`{"a":"<&>"}`)
		link = tutti.Link(link, raw)
		check(w.Entry(tutti.Entry{Seq: seq, Raw: raw, Link: link}))
	}
	check(w.Blob([]byte("blob")))
	_, err = w.Close()
	check(err)
	return out.Bytes()
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	var got []string
	head, end, err := archive.Read(bytes.NewReader(content(t)), archive.Handler{
		File:  func(name string, content []byte) error { got = append(got, name+" "+string(content)); return nil },
		Entry: func(e tutti.Entry) error { got = append(got, string(e.Raw)); return nil },
		Blob:  func(content []byte) error { got = append(got, string(content)); return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	event := `{"a":"<&>"}`
	if diff := cmp.Diff([]string{"server.json {}", "identity/ca.key secret", event, event, event, "blob"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if head.After != 7 || end.Seq != 12 || end.Entries != 3 || end.Blobs != 1 {
		t.Errorf("head %+v, end %+v", head, end)
	}
}

func TestEveryCutAndEveryChangeIsFound(t *testing.T) {
	whole := content(t)
	read := func(raw []byte) error {
		_, _, err := archive.Read(bytes.NewReader(raw), archive.Handler{})
		return err
	}
	end := bytes.LastIndex(whole, []byte("end.json"))
	for cut := 0; cut < end; cut += 64 {
		if err := read(whole[:cut]); tutti.CodeOf(err) != tutti.CodeInvalid {
			t.Fatalf("cut off at %d of %d: %v", cut, len(whole), err)
		}
	}
	// The digest in the end marker covers names and contents, but not the tar's own padding.
	for _, part := range []string{"backup.json", `"after":7`, "files/server.json", "secret", `"seq":9`, `"a":"<&>"`, "blobs/", "\x00blob\x00"[1:5], `"digest":"`} {
		at := bytes.Index(whole, []byte(part))
		if at < 0 {
			t.Fatalf("no %q", part)
		}
		spoiled := bytes.Clone(whole)
		spoiled[at+len(part)-1] ^= 1
		if err := read(spoiled); tutti.CodeOf(err) != tutti.CodeInvalid {
			t.Errorf("%q changed: %v", part, err)
		}
	}
}

func TestAHandlersErrorIsItsOwn(t *testing.T) {
	_, _, err := archive.Read(bytes.NewReader(content(t)), archive.Handler{Blob: func([]byte) error { return io.ErrClosedPipe }})
	if !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
}
