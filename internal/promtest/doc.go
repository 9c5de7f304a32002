// Package promtest feeds what a server prints to the tools of Prometheus. Only tests use it.
package promtest
