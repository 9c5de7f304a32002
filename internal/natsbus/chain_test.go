package natsbus_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/bustest"
	"github.com/tutti-project/tutti/internal/natsbus"
)

// forge rewrites the stream of the log, as an attacker with access to the disk could do. The function `change` gets
// all messages and returns the messages of the new stream. forge keeps the link headers as they are.
func forge(t *testing.T, bus *bustest.Bus, change func([]*nats.Msg) []*nats.Msg) {
	t.Helper()
	js := bus.JetStream(t)
	stream, err := js.Stream(t.Context(), "TUTTI_LOG")
	if err != nil {
		t.Fatal(err)
	}
	var msgs []*nats.Msg
	for seq := uint64(1); seq <= stream.CachedInfo().State.LastSeq; seq++ {
		raw, err := stream.GetMsg(t.Context(), seq)
		if err != nil {
			t.Fatal(err)
		}
		msg := nats.NewMsg(raw.Subject)
		msg.Data = raw.Data
		for _, name := range []string{"Tutti-Part", "Tutti-Blob", "Tutti-Link"} {
			if v := raw.Header.Get(name); v != "" {
				msg.Header.Set(name, v)
			}
		}
		msgs = append(msgs, msg)
	}
	config := stream.CachedInfo().Config
	if err := js.DeleteStream(t.Context(), "TUTTI_LOG"); err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	for _, msg := range change(msgs) {
		if _, err := js.PublishMsg(t.Context(), msg); err != nil {
			t.Fatal(err)
		}
	}
}

// chained appends a single event a, an event b, a batch [c, d], an event e, and
// a batch of f and a large event. It returns the bus.
func chained(t *testing.T) *bustest.Bus {
	t.Helper()
	bus := bustest.Start(t)
	log, last := openLog(t, bus), uint64(0)
	large := setValue("g")
	large.Body.(*tutti.ValueSet).Value = json.RawMessage(`"` + strings.Repeat("x", 200<<10) + `"`)
	for _, batch := range [][]tutti.Event{{setValue("a")}, {setValue("b")}, {setValue("c"), setValue("d")}, {setValue("e")}, {setValue("f"), large}} {
		var err error
		if last, err = log.Append(t.Context(), last, batch); err != nil {
			t.Fatal(err)
		}
	}
	return bus
}

func TestAForgedLogIsFound(t *testing.T) {
	t.Parallel()
	other := tutti.DigestOf([]byte("another blob"))
	for _, c := range []struct {
		reason string
		change func([]*nats.Msg) []*nats.Msg
		code   tutti.Code
		after  uint64 // number of events before the damage; a reader gets these events
	}{
		{"an event is another one", func(m []*nats.Msg) []*nats.Msg {
			m[1].Data = []byte(strings.Replace(string(m[1].Data), `"b"`, `"x"`, 1))
			return m
		}, tutti.CodeDamaged, 1},
		{"one byte of the last event", func(m []*nats.Msg) []*nats.Msg {
			m = m[:5]
			m[4].Data[len(m[4].Data)-2] ^= 1
			return m
		}, tutti.CodeDamaged, 4},
		{"an event is gone", func(m []*nats.Msg) []*nats.Msg { return slices.Delete(m, 1, 2) }, tutti.CodeDamaged, 1},
		{"an append of two is gone", func(m []*nats.Msg) []*nats.Msg { return slices.Delete(m, 2, 4) }, tutti.CodeDamaged, 2},
		{"the first one is gone", func(m []*nats.Msg) []*nats.Msg { return m[1:] }, tutti.CodeDamaged, 0},
		{"two are swapped", func(m []*nats.Msg) []*nats.Msg { m[0], m[1] = m[1], m[0]; return m }, tutti.CodeDamaged, 0},
		{"one is there twice", func(m []*nats.Msg) []*nats.Msg { return slices.Insert(m, 2, m[1]) }, tutti.CodeDamaged, 2},
		{"an append of two is made to look torn", func(m []*nats.Msg) []*nats.Msg {
			m[3].Header.Set("Tutti-Part", "2/3")
			return m
		}, tutti.CodeDamaged, 2},
		{"a large event is another one", func(m []*nats.Msg) []*nats.Msg {
			m[6].Header.Set("Tutti-Blob", string(other))
			return m
		}, tutti.CodeDamaged, 5},
		{"a link is stripped", func(m []*nats.Msg) []*nats.Msg { m[1].Header.Del("Tutti-Link"); return m }, tutti.CodeDamaged, 1},
		{"a message that is no event", func(m []*nats.Msg) []*nats.Msg { m[1].Header.Del("Tutti-Part"); return m }, tutti.CodeDamaged, 1},
		{"an event before the first", func(m []*nats.Msg) []*nats.Msg { return slices.Insert(m, 0, m[4]) }, tutti.CodeDamaged, 0},
	} {
		t.Run(c.reason, func(t *testing.T) {
			t.Parallel()
			bus := chained(t)
			forge(t, bus, c.change)
			read, entries := uint64(0), uint64(0)
			var err error
			for _, err = range openLog(t, bus).Read(t.Context(), 0) {
				if err == nil {
					read++
				}
			}
			wantCode(t, err, c.code)
			for _, err = range openLog(t, bus).Entries(t.Context(), 0) {
				if err == nil {
					entries++
				}
			}
			wantCode(t, err, c.code)
			if read != c.after || entries != c.after {
				t.Errorf("read %d events and %d entries before it was found, want %d", read, entries, c.after)
			}
		})
	}
}

func TestALogWithoutLinksIsRefused(t *testing.T) {
	t.Parallel()
	bus := chained(t)
	forge(t, bus, func(m []*nats.Msg) []*nats.Msg {
		for _, msg := range m {
			msg.Header.Del("Tutti-Link")
		}
		return m
	})
	_, err := natsbus.OpenLog(t.Context(), bus.Log(t), natsbus.LogOptions{})
	wantCode(t, err, tutti.CodeDamaged)

	// The stream is empty and was made by the previous release.
	js := bus.JetStream(t)
	stream, err := js.Stream(t.Context(), "TUTTI_LOG")
	if err != nil {
		t.Fatal(err)
	}
	config := stream.CachedInfo().Config
	if err := js.DeleteStream(t.Context(), "TUTTI_LOG"); err != nil {
		t.Fatal(err)
	}
	config.DenyPurge = true
	if _, err := js.CreateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	_, err = natsbus.OpenLog(t.Context(), bus.Log(t), natsbus.LogOptions{})
	wantCode(t, err, tutti.CodeDamaged)
}

func TestNoSingleEventCanBeRemoved(t *testing.T) {
	t.Parallel()
	bus := chained(t)
	js := bus.JetStream(t)
	stream, err := js.Stream(t.Context(), "TUTTI_LOG")
	if err != nil {
		t.Fatal(err)
	}
	if stream.DeleteMsg(t.Context(), 1) == nil {
		t.Error("an event could be removed")
	}
	// The log's API deletes the beginning of the log only after a snapshot. So in this test someone
	// else has deleted the beginning.
	if err := stream.Purge(t.Context(), jetstream.WithPurgeSequence(3)); err != nil {
		t.Fatal(err)
	}
	for after, code := range map[uint64]tutti.Code{0: tutti.CodeNotFound, 1: tutti.CodeNotFound, 2: tutti.CodeNotFound, 4: ""} {
		for _, err := range openLog(t, bus).Read(t.Context(), after) {
			if tutti.CodeOf(err) != code {
				t.Errorf("read after %d: %v, want code %q", after, err, code)
			}
		}
	}
}

func TestASnapshotInATornAppendIsNone(t *testing.T) {
	t.Parallel()
	bus := bustest.Start(t)
	log := openLog(t, bus)
	events := []tutti.Event{setValue("a"), setValue("b")}
	last, err := log.Append(t.Context(), 0, events)
	if err != nil {
		t.Fatal(err)
	}
	taken := []tutti.Event{{By: "server", Body: &tutti.SnapshotTaken{Through: 2, Link: events[1].Link}}}
	if _, err = log.Append(t.Context(), last, taken); err != nil {
		t.Fatal(err)
	}
	js := bus.JetStream(t)
	raw, err := json.Marshal(tutti.Event{By: "server", Body: &tutti.SnapshotTaken{Through: 3, Link: taken[0].Link}})
	if err != nil {
		t.Fatal(err)
	}
	msg := nats.NewMsg("log.snapshot.taken.log")
	msg.Data = raw
	msg.Header.Set("Tutti-Part", "1/2")
	msg.Header.Set("Tutti-Link", string(tutti.Link(taken[0].Link, raw)))
	if _, err := js.PublishMsg(t.Context(), msg); err != nil {
		t.Fatal(err)
	}
	again := openLog(t, bus)
	for round := range 2 { // round 0 has no event after the damage, round 1 has an append of two events
		got, found, err := again.Snapshot(t.Context())
		if err != nil || !found {
			t.Fatalf("Snapshot: found %v, %v", found, err)
		}
		if diff := cmp.Diff(taken[0], got); diff != "" {
			t.Errorf("round %d: -want +got\n%s", round, diff)
		}
		wantCode(t, again.Trim(t.Context(), 3), tutti.CodeInvalid)
		if _, err := again.Append(t.Context(), 3, []tutti.Event{setValue(fmt.Sprint(round)), setValue("x")}); round == 0 && err != nil {
			t.Fatal(err)
		}
	}
	if err := again.Trim(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"3 log", "5 0", "6 x"}, keys(t, openLog(t, bus), 2)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
