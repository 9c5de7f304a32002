package natsbus_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/bustest"
	"github.com/tutti-project/tutti/internal/natsbus"
)

func setValue(key string) tutti.Event {
	return tutti.Event{At: time.Unix(1, 0).UTC(), By: "server", Body: &tutti.ValueSet{Key: key, Value: json.RawMessage(`1`)}}
}

func keys(t *testing.T, log tutti.Log, after uint64) []string {
	t.Helper()
	var got []string
	for e, err := range log.Read(t.Context(), after) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%d %s", e.Seq, e.Body.ID()))
	}
	return got
}

// tear leaves the log as a loss of power does. It writes the first messages of a batch after the
// event with the link `before`, but not the rest of the batch.
func tear(t *testing.T, bus *bustest.Bus, before tutti.Digest, parts, of int) {
	t.Helper()
	js := bus.JetStream(t)
	for i := range parts {
		raw, err := json.Marshal(setValue(fmt.Sprintf("torn%d", i)))
		if err != nil {
			t.Fatal(err)
		}
		msg := nats.NewMsg("log.value.set.torn")
		msg.Data = raw
		before = tutti.Link(before, raw)
		msg.Header.Set("Tutti-Link", string(before))
		msg.Header.Set("Tutti-Part", fmt.Sprintf("%d/%d", i+1, of))
		if _, err := js.PublishMsg(t.Context(), msg); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTornBatchIsNotRead(t *testing.T) {
	t.Parallel()
	bus := bustest.Start(t)
	log := openLog(t, bus)
	events := []tutti.Event{setValue("a"), setValue("b")}
	last, err := log.Append(t.Context(), 0, events)
	if err != nil {
		t.Fatal(err)
	}
	tear(t, bus, events[1].Link, 2, 3)

	again := openLog(t, bus)
	if diff := cmp.Diff([]string{"1 a", "2 b"}, keys(t, again, 0)); diff != "" {
		t.Errorf("after the crash: -want +got\n%s", diff)
	}
	_, err = again.Append(t.Context(), last-1, []tutti.Event{setValue("x")})
	wantCode(t, err, tutti.CodeConflict)
	for seq, code := range map[uint64]tutti.Code{1: "", 2: "", 3: tutti.CodeNotFound, 4: tutti.CodeNotFound} {
		if _, err := again.LinkAt(t.Context(), seq); tutti.CodeOf(err) != code {
			t.Errorf("LinkAt(%d): %v, want code %q", seq, err, code)
		}
	}
	if got := again.Torn(); got != 4 {
		t.Errorf("torn up to %d, want 4", got)
	}
	last, err = again.Append(t.Context(), last, []tutti.Event{setValue("c"), setValue("d")})
	if err != nil || last != 6 {
		t.Fatalf("append behind the torn batch: %d, %v; want 6", last, err)
	}
	_, err = again.Append(t.Context(), 2, []tutti.Event{setValue("x")})
	wantCode(t, err, tutti.CodeConflict)
	for after, want := range map[uint64][]string{
		0: {"1 a", "2 b", "5 c", "6 d"}, 2: {"5 c", "6 d"}, 3: {"5 c", "6 d"}, 4: {"5 c", "6 d"}, 5: {"6 d"}, 6: nil,
	} {
		if diff := cmp.Diff(want, keys(t, openLog(t, bus), after)); diff != "" {
			t.Errorf("after %d: -want +got\n%s", after, diff)
		}
	}
}

func TestUnknownOutcome(t *testing.T) {
	t.Parallel()
	bus := bustest.Start(t)
	lost, back := make(chan struct{}, 1), make(chan struct{}, 1)
	nc := bus.RemoteLog(t,
		nats.DisconnectErrHandler(func(*nats.Conn, error) { lost <- struct{}{} }),
		nats.ReconnectHandler(func(*nats.Conn) { back <- struct{}{} }))
	log, err := natsbus.OpenLog(t.Context(), nc, natsbus.LogOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := log.Append(t.Context(), 0, []tutti.Event{setValue("a")}); err != nil {
		t.Fatal(err)
	}
	restart := bus.Stop()
	receive(t, lost, "loss of the connection")
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	for _, events := range [][]tutti.Event{{setValue("b"), setValue("c")}, {setValue("b")}} {
		_, err := log.Append(ctx, 1, events)
		if code := tutti.CodeOf(err); code != tutti.CodeUnavailable && code != tutti.CodeDeadline {
			t.Errorf("append without a bus: %v with code %q", err, code)
		}
	}
	for _, err := range log.Read(ctx, 0) {
		if err == nil {
			t.Error("read something without a bus")
		}
	}
	restart(t)
	// The failed append before the restart must not be in the log. If the connection had stored it
	// and sent it later, this append would be refused.
	receive(t, back, "reconnection")
	if _, err := log.Append(t.Context(), 1, []tutti.Event{setValue("d")}); err != nil {
		t.Errorf("append after the restart: %v", err)
	}
	if diff := cmp.Diff([]string{"1 a", "2 d"}, keys(t, log, 0)); diff != "" {
		t.Errorf("what was given up came later: -want +got\n%s", diff)
	}
}

func TestSubjects(t *testing.T) {
	bus := bustest.Start(t)
	events := []tutti.Event{
		setValue("plain_Key-1"), setValue("a/b"), setValue("*"), setValue(">"), setValue("a.b"), setValue(""),
		setValue(strings.Repeat("x", 500)), setValue(strings.Repeat("x", 501)),
		{By: "server", Body: &tutti.RunClaimed{Run: "00000000-0000-4000-8000-000000000001", Node: "n"}},
	}
	if _, err := openLog(t, bus).Append(t.Context(), 0, events); err != nil {
		t.Fatal(err)
	}
	js := bus.JetStream(t)
	stream, err := js.Stream(t.Context(), "TUTTI_LOG")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i := range events {
		msg, err := stream.GetMsg(t.Context(), uint64(i)+1)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, msg.Subject)
	}
	want := []string{
		"log.value.set.plain_Key-1", "log.value.set.=mexwe", "log.value.set.=fi", "log.value.set.=hy", "log.value.set.=mexge", "log.value.set.=",
		"log.value.set.~", "log.value.set.~", "log.run.claimed.00000000-0000-4000-8000-000000000001",
	}
	if got[6] == got[7] {
		t.Error("two long keys have one subject")
	}
	got[6], got[7] = got[6][:len("log.value.set.~")], got[7][:len("log.value.set.~")]
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestDamagedBlobIsReported(t *testing.T) {
	t.Parallel()
	bus := bustest.Start(t)
	blobs := openBlobs(t, bus)
	small, err := blobs.Put(t.Context(), []byte("small"))
	if err != nil {
		t.Fatal(err)
	}
	large, err := blobs.Put(t.Context(), pattern(300<<10))
	if err != nil {
		t.Fatal(err)
	}
	js := bus.JetStream(t)
	msg := nats.NewMsg("blob." + small.Hex())
	msg.Header.Set("Tutti-Size", "5")
	msg.Data = []byte("SMALL")
	if _, err := js.PublishMsg(t.Context(), msg); err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), "TUTTI_BLOBS")
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Purge(t.Context(), jetstream.WithPurgeSubject("chunk."+large.Hex()+".1")); err != nil {
		t.Fatal(err)
	}
	for _, digest := range []tutti.Digest{small, large} {
		_, err := blobs.Get(t.Context(), digest)
		wantCode(t, err, tutti.CodeDamaged)
	}
}

func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{1, 2, 50} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			bus := bustest.StartSync(b)
			log, err := natsbus.OpenLog(b.Context(), bus.Log(b), natsbus.LogOptions{})
			if err != nil {
				b.Fatal(err)
			}
			last := uint64(0)
			for b.Loop() {
				events := make([]tutti.Event, size)
				for i := range events {
					events[i] = setValue("a")
				}
				if last, err = log.Append(b.Context(), last, events); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkBlob(b *testing.B) {
	for _, size := range []int{10 << 10, 1 << 20, 16 << 20} {
		b.Run(fmt.Sprint(size>>10, "KiB"), func(b *testing.B) {
			bus := bustest.StartSync(b)
			blobs, err := natsbus.OpenBlobs(b.Context(), bus.Log(b))
			if err != nil {
				b.Fatal(err)
			}
			content := pattern(size)
			b.SetBytes(int64(size))
			for i := 0; b.Loop(); i++ {
				copy(content, fmt.Sprint(i))
				if _, err := blobs.Put(b.Context(), content); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
