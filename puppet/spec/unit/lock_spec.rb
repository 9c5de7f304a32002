# frozen_string_literal: true

require_relative '../spec_helper'
require_relative '../support/waiting'
require 'puppet_x/tutti/lock'

RSpec.describe PuppetX::Tutti::Lock do
  around { |example| Dir.mktmpdir { |dir| (@path = File.join(dir, 'lock')) && example.run } }

  let(:lock) { described_class.new(@path) }
  # Starts a process with this name that lives until the example ends.
  let(:named) do
    lambda do |name|
      script = File.join(File.dirname(@path), name)
      File.write(script, "#!/bin/sh\nread line\n")
      File.chmod(0o755, script)
      reader, @writer = IO.pipe
      # The process is ready when it has its new name. A message from the process itself
      # would need a second pipe.
      @pid = Process.spawn(script, in: reader)
      Waiting.for(60, 'the name of the process') { File.read("/proc/#{@pid}/comm").strip == name[0, 15] }
      @pid
    end
  end

  after do
    if @pid
      @writer.puts
      Process.wait(@pid)
    end
  end

  def ended
    pid = Process.spawn('true')
    Process.wait(pid)
    pid
  end

  [
    { reason: 'nobody holds it', content: nil, taken: true },
    { reason: 'an empty file is left over', content: '', taken: true },
    { reason: 'a dead process is left over', content: :ended, taken: true },
    { reason: 'a foreign process is no Puppet', content: 'foreign', taken: true },
    { reason: 'a Puppet holds it', content: 'puppet-other', taken: false }
  ].each do |row|
    [true, false].each do |ps|
      it "#{row[:taken] ? 'takes' : 'does not take'} the lock when #{row[:reason]}#{' (no ps)' unless ps}" do
        allow(Puppet::Util::Execution).to receive(:execute).and_raise(Puppet::ExecutionFailure, 'no ps') unless ps
        content = row[:content]
        content = send(content) if content.is_a?(Symbol)
        content = named.call(content) if content.is_a?(String) && !content.empty?
        File.write(@path, content.to_s) if content
        asked = []
        expect(lock.take { |pid, command| asked.push([pid, command]) && false }).to be(row[:taken])
        expect(File.read(@path)).to eq(row[:taken] ? Process.pid.to_s : @pid.to_s)
        expect(asked.map(&:first)).to eq(row[:taken] ? [] : [@pid])
        expect(asked.first.last).to include('puppet-other') unless row[:taken]
      end
    end
  end

  it 'tries again when the agent says that the lock may be free' do
    named.call('puppet-other')
    File.write(@path, @pid.to_s)
    taken = lock.take do
      File.unlink(@path)
      true
    end
    expect([taken, File.read(@path)]).to eq([true, Process.pid.to_s])
  end

  it 'releases its own lock only' do
    File.write(@path, '1')
    lock.release
    expect(File.exist?(@path)).to be(true)
    File.write(@path, Process.pid.to_s)
    lock.release
    expect(File.exist?(@path)).to be(false)
  end
end
