// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package expressions

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"

	"github.com/trainyard/trainyard/dispatch"
)

// maxShown is how many values of a worker are shown, and maxValue how many bytes of each.
const (
	maxShown = 8
	maxValue = 64
)

// read is a value of the worker that an expression reads: a field, or one key of a field that is a map.
type read struct{ field, key string }

func (r read) String() string {
	if r.key == "" {
		return workerVariable + "." + r.field
	}
	return fmt.Sprintf("%s.%s[%q]", workerVariable, r.field, r.key)
}

// workerReads are the values of the worker that an expression reads, sorted. It leaves out lists, and maps that are
// read as a whole: they are too long to be shown.
func workerReads(ast *celast.AST) []read {
	found := map[read]bool{}
	celast.PreOrderVisit(ast.Expr(), celast.NewExprVisitor(func(e celast.Expr) {
		switch e.Kind() {
		case celast.SelectKind:
			of := e.AsSelect()
			if of.Operand().Kind() == celast.IdentKind && of.Operand().AsIdent() == workerVariable {
				found[read{field: of.FieldName()}] = true
			}
			if field := fieldOfWorker(of.Operand()); field != "" {
				found[read{field, of.FieldName()}] = true
			}
		case celast.CallKind:
			args := e.AsCall().Args()
			switch e.AsCall().FunctionName() {
			case operators.Index, operators.OptIndex:
				addKey(found, args[0], args[1])
			case operators.In:
				addKey(found, args[1], args[0])
			}
		default: // All other kinds contain these.
		}
	}))
	reads := make([]read, 0, len(found))
	for r := range found {
		if t := workerType.Fields[r.field]; t != nil && (r.key != "") == t.Type.IsMap() && !t.Type.IsList() {
			reads = append(reads, r)
		}
	}
	slices.SortFunc(reads, func(a, b read) int { return cmp.Or(cmp.Compare(a.field, b.field), cmp.Compare(a.key, b.key)) })
	return reads
}

// addKey adds what is read of a map of the worker by a key that the expression names.
func addKey(found map[read]bool, of, key celast.Expr) {
	field := fieldOfWorker(of)
	if field == "" || key.Kind() != celast.LiteralKind {
		return
	}
	if text, ok := key.AsLiteral().Value().(string); ok {
		found[read{field, text}] = true
	}
}

// fieldOfWorker is the field of the worker that an expression is, empty if it is something else.
func fieldOfWorker(e celast.Expr) string {
	if e.Kind() != celast.SelectKind || e.AsSelect().Operand().Kind() != celast.IdentKind ||
		e.AsSelect().Operand().AsIdent() != workerVariable {
		return ""
	}
	return e.AsSelect().FieldName()
}

// Reads implements dispatch.Expression.
func (e *Expression) Reads(worker *dispatch.Worker) string {
	values := workerValue(worker, e.accelerators)
	shown := make([]string, 0, maxShown)
	for _, r := range e.reads[:min(len(e.reads), maxShown)] {
		shown = append(shown, r.String()+" is "+valueOf(values[r.field], r.key))
	}
	return strings.Join(shown, ", ")
}

// valueOf is a value in words. key is empty, or a key of a map.
func valueOf(value any, key string) string {
	switch v := value.(type) {
	case map[string]string:
		if text, has := v[key]; has {
			return valueOf(text, "")
		}
		return "not there"
	case map[string]float64:
		if number, has := v[key]; has {
			return valueOf(number, "")
		}
		return "not there"
	case string:
		if len(v) > maxValue {
			v = strings.ToValidUTF8(v[:maxValue], "") + "..."
		}
		return fmt.Sprintf("%q", v)
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	default:
		return fmt.Sprint(v)
	}
}
