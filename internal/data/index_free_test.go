package data

import (
	"fmt"
	"testing"

	"github.com/tutti-project/tutti"
)

// TestTheIndexFreesWhatNobodyReads reads private fields, because unused entries are
// visible nowhere else.
func TestTheIndexFreesWhatNobodyReads(t *testing.T) {
	s := NewState()
	s.Apply(tutti.Event{Seq: 1, Body: &tutti.JobStarted{Job: "j"}})
	s.Apply(tutti.Event{Seq: 2, Body: &tutti.ExportsSet{Node: "p", Job: "j", Overlay: true, Count: 1, Exports: []tutti.Export{{Type: "Web", Title: "1"}}}})
	record := func(key string) *tutti.Questions {
		return &tutti.Questions{Keys: []string{"absent", key}, Reads: []tutti.Read{
			{Query: tutti.Query{Kind: tutti.QueryCollect, Type: "Web"}}, {Query: tutti.Query{Kind: tutti.QueryValue, Key: key}},
			{Query: tutti.Query{Kind: tutti.QueryHiera, Key: key}}, {Query: tutti.Query{Kind: "no kind"}},
		}}
	}
	sizes := func() string {
		return fmt.Sprint(len(s.records), len(s.questions), len(s.collectors), len(s.absent), len(s.jobs["j"].change), len(s.declares), len(s.declared), len(s.declaredFor))
	}
	s.Remember("a", record("x"), "j")
	s.Declare("a", []string{"node/a/hiera/x", "shared/hiera/x"})
	once := sizes()
	s.Remember("b", record("x"), "")
	s.Remember("b", record("y"), "")
	s.Remember("a", record("y"), "j")
	s.Remember("a", record("x"), "j")
	s.Forget("b")
	if now := sizes(); now != once {
		t.Errorf("after b was forgotten: %s, before it: %s", now, once)
	}
	s.Apply(tutti.Event{Seq: 3, Body: &tutti.NodeRemoved{Node: "a"}})
	if now := sizes(); now != "0 0 0 0 0 0 0 0" {
		t.Errorf("after a was removed: %s", now)
	}
}
