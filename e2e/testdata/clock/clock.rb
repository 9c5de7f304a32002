# frozen_string_literal: true

# Gives each Ruby process of a lab host the clock that TestTruth (truthclock_test.go) has set. The host's RubyGems loads this
# file. See clock.go for the format of the file with the steps.
require 'date'

module TestClock
  FILE = '/run/tutti-test-clock'
  AGAIN = 0.05
  BILLION = 1_000_000_000
  UNITS = {
    nanosecond: ->(ns) { ns }, microsecond: ->(ns) { ns / 1000 }, millisecond: ->(ns) { ns / 1_000_000 }, second: ->(ns) { ns / BILLION },
    float_second: ->(ns) { ns / 1e9 }, float_millisecond: ->(ns) { ns / 1e6 }, float_microsecond: ->(ns) { ns / 1e3 }
  }.freeze
  KERNEL = Process.method(:clock_gettime)

  def self.steps
    now = KERNEL.call(Process::CLOCK_MONOTONIC)
    return @steps if @read && now - @read < AGAIN

    @steps = begin
      File.read(FILE).lines.map { |line| line.split.map(&:to_i) }
    rescue Errno::ENOENT
      []
    end
    @read = now
    @steps
  end

  # Returns how far the host's clock was ahead at a time of the kernel's clock, in nanoseconds.
  def self.offset(kernel)
    _, offset = steps.reverse_each.find { |from, _| from <= kernel }
    offset || 0
  end

  # Turns a time of the kernel's clock into a time of the host's clock.
  def self.time(kernel)
    kernel + Rational(offset((kernel.to_i * BILLION) + kernel.nsec), BILLION)
  end

  module Now
    def now(**options)
      ns = Process.clock_gettime(Process::CLOCK_REALTIME, :nanosecond)
      at(ns / BILLION, ns % BILLION, :nsec, **options)
    end

    def new(*args, **options)
      args.empty? && (options.keys - [:in]).empty? ? now(**options) : super
    end
  end

  module Clock
    def clock_gettime(id, unit = :float_second)
      return super unless [Process::CLOCK_REALTIME, Process::CLOCK_REALTIME_COARSE].include?(id)

      ns = super(id, :nanosecond)
      UNITS.fetch(unit || :float_second).call(ns + TestClock.offset(ns))
    end
  end

  # For the times that the kernel has noted in a file system
  module Stamps
    %i[atime ctime mtime].each do |name|
      define_method(name) { |*path| TestClock.time(super(*path)) }
    end
  end

  module Today
    def today(start = Date::ITALY)
      Time.now.to_date.new_start(start)
    end
  end

  module Moment
    def now(start = Date::ITALY)
      Time.now.to_datetime.new_start(start)
    end
  end
end

Time.singleton_class.prepend(TestClock::Now)
Process.singleton_class.prepend(TestClock::Clock)
[File.singleton_class, File, File::Stat].each { |owner| owner.prepend(TestClock::Stamps) }
Date.singleton_class.prepend(TestClock::Today)
DateTime.singleton_class.prepend(TestClock::Moment)
