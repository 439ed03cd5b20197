// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package expressions

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/ext"
	"github.com/google/cel-go/interpreter"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/library"

	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/accelerators"
)

const (
	// costLimit is what one answer may cost, in CEL's units: about a millisecond. A decision asks once for each worker.
	costLimit = 10_000
	// maxLength is how many characters an expression may have. The CRD has the same limit.
	maxLength = 4096
)

// Expression is a compiled expression.
type Expression struct {
	program cel.Program
	// fields are the fields of the job that the expression reads, sorted.
	fields []string
	// reads are the values of the worker that the expression reads, sorted.
	reads []read
	// accelerators knows the resources that worker.gpus and worker.freeGPUs count.
	accelerators accelerators.Table
}

var _ dispatch.Expression = (*Expression)(nil)

// Compile compiles an expression. The error names all faults with line and column. If a name is not known, the error
// also lists the names that an expression can use. Compile takes milliseconds.
func Compile(text string) (*Expression, error) {
	env, err := newEnvironment()
	if err != nil {
		return nil, fmt.Errorf("prepare CEL: %w", err)
	}
	ast, issues := env.Compile(text)
	if issues.Err() != nil {
		return nil, faults(issues)
	}
	if !ast.OutputType().IsExactType(cel.BoolType) {
		return nil, fmt.Errorf("line 1, column 1: it is of type %s, and has to be a bool", ast.OutputType())
	}
	program, err := env.Program(ast, cel.EvalOptions(cel.OptOptimize, cel.OptTrackCost), cel.CostLimit(costLimit),
		cel.CostTracking(&library.CostEstimator{}))
	if err != nil {
		return nil, fmt.Errorf("line 1, column 1: %w", err)
	}
	return &Expression{program: program, fields: jobFields(ast.NativeRep()), reads: workerReads(ast.NativeRep())}, nil
}

// Counting returns the expression with another Table of the resources that are accelerators. The expression of Compile
// has the zero Table.
func (e *Expression) Counting(table accelerators.Table) *Expression {
	counting := *e
	counting.accelerators = table
	return &counting
}

// newEnvironment has the settings and libraries of Kubernetes' own expressions, without those that call an API server.
func newEnvironment() (*cel.Env, error) {
	env, err := cel.NewEnv(
		cel.ParserExpressionSizeLimit(maxLength),
		cel.HomogeneousAggregateLiterals(), cel.DefaultUTCTimeZone(true), cel.CrossTypeNumericComparisons(true), cel.OptionalTypes(),
		cel.ASTValidators(cel.ValidateDurationLiterals(), cel.ValidateTimestampLiterals(), cel.ValidateRegexLiterals(),
			cel.ValidateHomogeneousAggregateLiterals()),
		library.Lists(), library.Regex(), library.Quantity(), library.Format(), library.SemverLib(library.SemverVersion(1)),
		ext.Strings(ext.StringsVersion(2)), ext.Sets(), ext.Lists(ext.ListsVersion(3)), ext.TwoVarComprehensions(),
	)
	if err != nil {
		return nil, err
	}
	types, err := apiservercel.NewDeclTypeProvider(workerType, jobType).EnvOptions(env.CELTypeProvider())
	if err != nil {
		return nil, err
	}
	return env.Extend(append(types,
		cel.Variable(workerVariable, workerType.CelType()), cel.Variable(jobVariable, jobType.CelType()))...)
}

// faults joins all issues in one line, in the order of the text.
func faults(issues *cel.Issues) error {
	var messages []string
	unknown := false
	for _, issue := range issues.Errors() {
		// CEL counts columns from 0, but lines from 1.
		message := fmt.Sprintf("line %d, column %d: %s", max(issue.Location.Line(), 1), issue.Location.Column()+1, issue.Message)
		messages = append(messages, strings.Join(strings.Fields(message), " "))
		unknown = unknown || strings.Contains(issue.Message, "undefined field") || strings.Contains(issue.Message, "undeclared reference")
	}
	if unknown {
		messages = append(messages, fmt.Sprintf("an expression sees %s.{%s} and %s.{%s}",
			workerVariable, fieldsOf(workerType), jobVariable, fieldsOf(jobType)))
	}
	return errors.New(strings.Join(messages, "; "))
}

func fieldsOf(t *apiservercel.DeclType) string {
	return strings.Join(slices.Sorted(maps.Keys(t.Fields)), ", ")
}

// jobFields are the fields of the job that an expression can read, sorted. They may be too many, because a variable of
// a macro with the name job counts as the job.
func jobFields(ast *celast.AST) []string {
	fields, selected, idents := map[string]bool{}, map[int64]bool{}, []int64(nil)
	celast.PreOrderVisit(ast.Expr(), celast.NewExprVisitor(func(e celast.Expr) {
		switch e.Kind() {
		case celast.SelectKind:
			if of := e.AsSelect().Operand(); of.Kind() == celast.IdentKind && of.AsIdent() == jobVariable {
				fields[e.AsSelect().FieldName()] = true
				selected[of.ID()] = true
			}
		case celast.IdentKind:
			if e.AsIdent() == jobVariable {
				idents = append(idents, e.ID())
			}
		default: // All other kinds contain these.
		}
	}))
	if slices.ContainsFunc(idents, func(id int64) bool { return !selected[id] }) {
		return slices.Sorted(maps.Keys(jobType.Fields)) // The expression uses the job as a whole.
	}
	maps.DeleteFunc(fields, func(field string, _ bool) bool { return jobType.Fields[field] == nil })
	return slices.Sorted(maps.Keys(fields))
}

// For implements dispatch.Expression.
func (e *Expression) For(job *dispatch.Job) func(*dispatch.Worker) (bool, error) {
	variables := map[string]any{jobVariable: e.read(job)}
	return func(worker *dispatch.Worker) (bool, error) {
		variables[workerVariable] = workerValue(worker, e.accelerators)
		result, _, err := e.program.Eval(variables)
		var cancelled interpreter.EvalCancelledError
		switch {
		case errors.As(err, &cancelled) && cancelled.Cause == interpreter.CostLimitExceeded:
			return false, fmt.Errorf("it takes more than %d steps, which is the limit of an expression", costLimit)
		case err != nil:
			return false, err
		}
		admitted, ok := result.Value().(bool)
		if !ok {
			return false, fmt.Errorf("it is %v, not a bool", result.Value())
		}
		return admitted, nil
	}
}

// read returns the fields of the job that the expression reads.
func (e *Expression) read(job *dispatch.Job) map[string]any {
	values := make(map[string]any, len(e.fields))
	for _, field := range e.fields {
		values[field] = jobValue(job, field)
	}
	return values
}

// Key is equal for two jobs only if the expression gives both the same answer for every worker.
func (e *Expression) Key(job *dispatch.Job) string {
	if len(e.fields) == 0 {
		return ""
	}
	key, err := json.Marshal(e.read(job)) // Maps are encoded in the order of their keys.
	if err != nil {                       // JSON has no text for some numbers. Then no other job is known to be equal.
		return string(job.UID)
	}
	return string(key)
}
