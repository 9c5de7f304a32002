# frozen_string_literal: true

require 'json'
require 'socket'
require 'timeout'
require_relative 'waiting'

# A WarmParent is a warm parent, as the agent uses it. With TUTTI_SPECS=warm the runs of the specs
# are its children.
class WarmParent
  Status = Struct.new(:exitstatus)

  class << self
    def wanted?
      ENV['TUTTI_SPECS'] == 'warm'
    end

    # Returns the parent that all specs of a process share. The shared parent ends with the process.
    def shared(environment)
      @shared ||= new(environment).tap { |parent| at_exit { parent.stop } }
    end
  end

  # The first message of the parent.
  attr_reader :ready

  attr_reader :pid, :environment

  def initialize(environment)
    @environment = environment
    @socket, theirs = UNIXSocket.pair
    @pid = Process.spawn(environment, RbConfig.ruby, RealRun::LAUNCHER, '--warm', in: theirs)
    theirs.close
    @ready = answer
    raise "the warm parent did not start: #{@ready}" unless @ready['ready']
  end

  # @return [Hash] the pid and the start time of the child, or the reason why there is no child
  def run(dir)
    order({ 'do' => 'run', 'dir' => dir }.merge(@facts || {}))
    answer
  end

  # Starts a collection of facts with the order of a run that has ended. Later runs may use these
  # facts.
  def begin_collection(dir, age: 60)
    order('do' => 'facts', 'dir' => dir)
    @facts = { 'facts_for' => dir, 'facts_age' => age }
  end

  # `collect` is like `begin_collection`, but waits for the end of the collection.
  def collect(dir, age: 60)
    before = children # a run that has ended may still be a child of the parent
    begin_collection(dir, age: age)
    collector = Waiting.for(60, 'the begin of the collection') { (children - before).first }
    Waiting.for(60, 'the end of the collection') { !children.include?(collector) }
  end

  # After this call, runs use no facts of a collection.
  def forget
    @facts = nil
  end

  # @return [String, nil] the changed file because of which the parent ends; to get this answer, the method orders a
  #   run
  def changed(machine)
    run(machine.dir)['changed']
  end

  # Sends an order without waiting for an answer.
  def order(order)
    @socket.puts(JSON.generate(order))
  end

  # @return [Hash] the next message of the parent
  def answer
    Timeout.timeout(60) { JSON.parse(@socket.gets) }
  end

  # Returns a file of the parent in /proc.
  def proc(file)
    File.read("/proc/#{@pid}/#{file}")
  end

  # Returns the open file descriptors with their targets.
  def descriptors
    Dir.children("/proc/#{@pid}/fd").to_h { |fd| [fd.to_i, File.readlink("/proc/#{@pid}/fd/#{fd}").sub(/\d+/, 'N')] }
  end

  # Returns children that still exist, or whose exit the parent has not collected.
  def children
    proc("task/#{@pid}/children").split.map(&:to_i)
  end

  def stop
    @socket.close unless @socket.closed?
    Process.wait(@pid) if @pid
    @pid = nil
  end

  # Kills the parent.
  def kill
    Process.kill('KILL', @pid)
    Process.wait(@pid)
    @pid = nil
  end

  # Returns whether the socket is closed now that the parent has ended.
  def silent?
    Timeout.timeout(60) { @socket.gets.nil? }
  rescue Errno::ECONNRESET
    true
  end

  # Waits until a process has ended. The process is not a child of this process.
  # @return [Status] with the exit code in the last line of the phases
  def self.wait(pid, phases)
    Waiting.for(120, 'the end of the run') { !alive?(pid) }
    Status.new(File.exist?(phases) ? JSON.parse(File.readlines(phases).last)['exit'] : nil)
  end

  def self.alive?(pid)
    !File.read("/proc/#{pid}/stat").rpartition(')').last.start_with?(' Z')
  rescue SystemCallError
    false
  end
end
