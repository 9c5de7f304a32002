# frozen_string_literal: true

require 'json'
require_relative 'real_run'

# Runs the same code on the same machine twice, warm and then cold, and compares the output.
class Twins
  # VOLATILE lists fields that also differ between two runs of the same kind.
  VOLATILE = %w[t time pid elapsed evaluation_time start_time metrics catalog_uuid configuration_version config_retrieval warm facts_age digest
                facts_digest].freeze

  attr_reader :warm, :cold, :machine
  attr_writer :parent

  # @param parent [WarmParent]
  # @yield [RealRun] the machine before its first run
  def initialize(parent)
    @parent = parent
    @machine = RealRun.new(parent: parent)
    yield @machine
  end

  # Starts an earlier run, in a child of the same parent.
  def before
    @machine.again(parent: @parent).call
  end

  # Both runs begin with the same state.
  def call
    var = @machine.path('var')
    FileUtils.cp_r(var, "#{var}-before")
    @warm = @machine.again(parent: @parent).call
    FileUtils.rm_rf(var)
    File.rename("#{var}-before", var)
    @cold = @machine.again(parent: nil).call
    self
  end

  # Returns the reason why the warm run became cold.
  def why
    @warm.lines('phase.jsonl').map { |line| line['cold'] }.compact.first
  end

  # Returns the differences between the two results.
  # @return [Array] pairs: a line of only the warm run, and a line of only the cold run
  def differences
    warm, cold = [@warm, @cold].map { |run| Twins.result(run) }
    (warm - cold).zip(cold - warm) + (cold - warm).drop((warm - cold).size).map { |line| [nil, line] }
  end

  # Returns all output of a run, as numbered parts. If a run started again, its earlier phases and
  # requests are left out.
  def self.result(run)
    phases = run.lines('phase.jsonl')
    phases = phases.drop(phases.rindex { |line| line.key?('warm') && !line.key?('facts_age') })
    requests = run.agent.requests
    requests = requests.drop(requests.rindex { |request| request['op'] == 'hello' } || 0)
    log = said(run, 'log.jsonl').map { |line| less(line) }
    parts = { 'phase' => phases, 'request' => requests, 'log' => log, 'event' => said(run, 'events.jsonl'),
              'report' => run.report? ? run.report.sort : [], 'file' => (Dir.children(run.dir) - %w[facts.json]).sort }
    parts.flat_map do |part, lines|
      steady(JSON.parse(JSON.generate(lines).gsub(run.run, 'RUN'))).each_with_index.map { |line, i| [part, i, line] }
    end
  end

  # Removes Facter's measurements, and the numbers of processes and files in debug messages.
  def self.less(line)
    return line unless %w[debug info].include?(line['level'])

    line.merge('message' => line['message'][/\A\D{0,16}/])
  end

  def self.said(run, file)
    File.exist?(File.join(run.dir, file)) ? run.lines(file) : []
  end

  def self.steady(data)
    case data
    when Hash then data.reject { |key, _| VOLATILE.include?(key) }.transform_values { |value| steady(value) }
    when Array then VOLATILE.include?(data.first) ? [] : data.map { |value| steady(value) }
    when String then data.gsub(/in [0-9.]+ seconds/, 'in N seconds').gsub(/(configuration version) '\d+'/, '\1')
    else data
    end
  end
  private_class_method :said, :steady, :less

  # Returns the content of a file in the directories of both runs.
  # @return [Array<String>] the content in the warm run and in the cold run
  def files(name)
    [@warm, @cold].map { |run| File.read(File.join(run.dir, name)).gsub(run.run, 'RUN') }
  end

  def said
    "== warm\n#{@warm.said}\n== cold\n#{@cold.said}"
  end

  def clean
    @machine.clean
  end
end
